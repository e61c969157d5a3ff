import { Body, Controller, Post, Req, Res } from '@nestjs/common';
import {
  CreateResponseRequest,
  InferenceErrorBody,
  type InferenceIdentity,
  ModelResponse,
  Operation,
} from '@nebo/contracts';
import { InferenceCaller } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Generation } from '../generation.js';
import { ResponsesFormat } from './responses.format.js';

/** `POST /v1/responses`, plain and streamed. */
@Controller('v1/responses')
export class ResponsesController {
  constructor(
    private readonly generation: Generation,
    private readonly format: ResponsesFormat,
  ) {}

  @Post()
  @Operation({
    id: 'responses_create_response',
    tag: 'responses',
    summary: 'Response, plain or streamed',
    permission: [],
    resource: 'key',
    errorBody: InferenceErrorBody,
    body: CreateResponseRequest,
    answer: ModelResponse,
    stream: true,
    errors: { 502: 'The model could not be reached, or its answer broke off; nothing was charged' },
  })
  create(
    @InferenceCaller() caller: InferenceIdentity,
    @Body() body: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    return this.generation.serve(this.format, caller, body, request, reply);
  }
}
