import { Body, Controller, Post, Req, Res } from '@nestjs/common';
import {
  CountMessageTokensRequest,
  CreateMessageRequest,
  type InferenceIdentity,
  MessageTokenCount,
  MessagesErrorBody,
  ModelMessage,
  Operation,
} from '@nebo/contracts';
import { InferenceCaller } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Catalogue } from '../../catalogue/catalogue.js';
import { Generation } from '../generation.js';
import { estimateInput } from './input-estimate.js';
import { readMessagesRequest } from './messages-request.js';
import { messagesFormat } from './messages.format.js';

/** `POST /v1/messages`, plain and streamed, and the count of a request's tokens. */
@Controller('v1/messages')
export class MessagesController {
  constructor(
    private readonly generation: Generation,
    private readonly catalogue: Catalogue,
  ) {}

  @Post()
  @Operation({
    id: 'messages_create_message',
    tag: 'messages',
    summary: 'Message, plain or streamed',
    permission: [],
    resource: 'key',
    errorBody: MessagesErrorBody,
    takesKeyHeader: true,
    body: CreateMessageRequest,
    answer: ModelMessage,
    stream: true,
    errors: { 502: 'The model could not be reached, or its answer broke off; nothing was charged' },
  })
  create(
    @InferenceCaller() caller: InferenceIdentity,
    @Body() body: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    return this.generation.serve(messagesFormat, caller, body, request, reply);
  }

  /** An estimate: no model is asked, no money is looked at, nothing is charged. */
  @Post('count_tokens')
  @Operation({
    id: 'messages_count_tokens',
    tag: 'messages',
    summary: 'Estimate of the input tokens of a message; free',
    permission: [],
    resource: 'key',
    errorBody: MessagesErrorBody,
    takesKeyHeader: true,
    body: CountMessageTokensRequest,
    answer: MessageTokenCount,
  })
  count(
    @InferenceCaller() caller: InferenceIdentity,
    @Body() body: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): MessageTokenCount {
    const { order } = readMessagesRequest(body, this.catalogue, caller, 'count');
    reply.header('x-service-token-count', 'estimate');
    return { input_tokens: estimateInput(order) };
  }
}
