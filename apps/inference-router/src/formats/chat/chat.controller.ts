import { Body, Controller, Inject, Post, Req, Res } from '@nestjs/common';
import {
  ChatCompletion,
  ChatCompletionRequest,
  formatRubles,
  type InferenceIdentity,
  Operation,
} from '@nebo/contracts';
import { errorAnswer, InferenceCaller, inferenceErrorBody, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Catalogue } from '../../catalogue/catalogue.js';
import { type Admitted, Admission } from '../../completions/admission.js';
import { ClientGone, Completions } from '../../completions/completions.service.js';
import { EventReply } from '../event-reply.js';
import { ChatAnswer, type ChatHead } from './chat-answer.js';
import { readChatRequest } from './chat-request.js';
import { ChatStream } from './chat-stream.js';

/** `POST /v1/chat/completions`, plain and streamed. */
@Controller('v1/chat')
export class ChatController {
  private readonly keepAlive: number;

  constructor(
    private readonly catalogue: Catalogue,
    private readonly admission: Admission,
    private readonly completions: Completions,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.keepAlive = runtime.config.int('NEBO_INFERENCE_KEEP_ALIVE', 15, { min: 1 }) * 1_000;
  }

  @Post('completions')
  @Operation({
    id: 'chat_create_completion',
    tag: 'chat',
    summary: 'Chat completion, plain or streamed',
    permission: [],
    resource: 'key',
    body: ChatCompletionRequest,
    answer: ChatCompletion,
    stream: true,
    errors: { 502: 'The model could not be reached, or its answer broke off; nothing was charged' },
  })
  async create(
    @InferenceCaller() caller: InferenceIdentity,
    @Body() body: unknown,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const gone = new AbortController();
    reply.raw.once('close', () => {
      if (!reply.raw.writableFinished) gone.abort();
    });
    const { order, includeUsage } = readChatRequest(body, this.catalogue, caller);
    const admitted = await this.admission.admit(order, caller, String(request.id));
    const head: ChatHead = {
      id: `chatcmpl-${admitted.operationId}`,
      created: Math.floor(admitted.startedAt.getTime() / 1_000),
      model: order.offer.model.id,
    };
    try {
      if (order.stream) await this.stream(admitted, reply, gone.signal, new ChatStream(head, includeUsage));
      else await this.plain(admitted, reply, gone.signal, head);
    } catch (error) {
      if (!(error instanceof ClientGone)) throw error;
      // There is nobody to answer; the connection is closed already.
      if (!reply.sent) reply.hijack();
    }
  }

  private async plain(
    admitted: Admitted,
    reply: FastifyReply,
    gone: AbortSignal,
    head: ChatHead,
  ): Promise<void> {
    const answer = new ChatAnswer();
    const completed = await this.completions.run(admitted, { pieces: (pieces) => answer.add(pieces) }, gone);
    await reply
      .status(200)
      .headers({
        ...headersOf(admitted),
        'content-type': 'application/json; charset=utf-8',
        'x-nebo-cost': formatRubles(completed.cost),
      })
      .send(JSON.stringify(answer.body(head, completed)));
  }

  private async stream(
    admitted: Admitted,
    reply: FastifyReply,
    gone: AbortSignal,
    stream: ChatStream,
  ): Promise<void> {
    const events = new EventReply(reply, headersOf(admitted), this.keepAlive);
    try {
      const completed = await this.completions.run(
        admitted,
        { pieces: (pieces) => events.write(stream.pieces(pieces)) },
        gone,
      );
      events.end(stream.end(completed));
    } catch (error) {
      events.close();
      if (!events.begun || error instanceof ClientGone) throw error;
      // Never a clean end: clients would take the part for the whole.
      const answer = errorAnswer(error, admitted.requestId);
      this.runtime.log.error(
        { err: (error as Error).cause ?? error, request_id: admitted.requestId },
        'stream broke off',
      );
      events.end(`data: ${JSON.stringify(inferenceErrorBody('/v1/chat/completions', answer))}\n\n`);
    }
  }
}

function headersOf({ order, operationId }: Admitted): Record<string, string> {
  return {
    'x-nebo-ledger-id': operationId,
    ...(order.offer.simulated ? { 'x-nebo-simulated': 'true' } : {}),
  };
}
