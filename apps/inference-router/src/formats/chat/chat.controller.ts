import { Body, Controller, Post, Req, Res } from '@nestjs/common';
import {
  ChatCompletion,
  ChatCompletionRequest,
  InferenceErrorBody,
  type InferenceIdentity,
  Operation,
} from '@nebo/contracts';
import { InferenceCaller } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Generation } from '../generation.js';
import { chatFormat } from './chat.format.js';

/** `POST /v1/chat/completions`, plain and streamed. */
@Controller('v1/chat')
export class ChatController {
  constructor(private readonly generation: Generation) {}

  @Post('completions')
  @Operation({
    id: 'chat_create_completion',
    tag: 'chat',
    summary: 'Chat completion, plain or streamed',
    permission: [],
    resource: 'key',
    errorBody: InferenceErrorBody,
    body: ChatCompletionRequest,
    answer: ChatCompletion,
    stream: true,
    errors: { 502: 'The model could not be reached, or its answer broke off; nothing was charged' },
  })
  create(
    @InferenceCaller() caller: InferenceIdentity,
    @Body() body: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    return this.generation.serve(chatFormat, caller, body, request, reply);
  }
}
