import { Injectable } from '@nestjs/common';
import type { DirectOperations } from '@nebo/service-kit';
import { chatFormat } from './chat/chat.format.js';
import type { Format } from './format.js';
import { messagesFormat } from './messages/messages.format.js';
import { ResponsesFormat } from './responses/responses.format.js';

/** The formats by the path of their requests. */
@Injectable()
export class Formats {
  private readonly byPath: ReadonlyMap<string, Format>;

  constructor(responses: ResponsesFormat) {
    this.byPath = new Map([chatFormat, messagesFormat, responses].map((format) => [format.path, format]));
  }

  at(path: string): Format {
    return this.byPath.get(path)!;
  }
}

/** Their operations, which are answered past the framework. */
export const generationRoutes: DirectOperations['routes'] = [
  { path: '/v1/chat/completions', operation: 'chat_create_completion' },
  { path: '/v1/messages', operation: 'messages_create_message' },
  { path: '/v1/responses', operation: 'responses_create_response' },
];
