import type { ServerResponse } from 'node:http';
import { Inject, Injectable } from '@nestjs/common';
import { formatRubles, type InferenceIdentity } from '@nebo/contracts';
import {
  ApiError,
  type DirectHandler,
  type DirectRequest,
  errorAnswer,
  inferenceErrorBody,
  RUNTIME,
  type Runtime,
  sendError,
  sendJson,
  type Turns,
} from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Catalogue } from '../catalogue/catalogue.js';
import { type Admitted, Admission } from '../completions/admission.js';
import { Cancel } from '../completions/cancel.js';
import { ClientGone, Completions } from '../completions/completions.service.js';
import { InferenceFigures } from '../requests/inference-figures.js';
import { Deadlines } from '../upstreams/deadlines.js';
import { EventReply } from './event-reply.js';
import type { Format, FormatRequest } from './format.js';
import { Formats } from './formats.js';

/** Carries out the requests of every format: read, admit, run, write. Answers on the raw response, errors included. */
@Injectable()
export class Generation implements DirectHandler {
  private readonly keepAlive: number;
  private readonly clientIdle: number;

  constructor(
    private readonly formats: Formats,
    private readonly catalogue: Catalogue,
    private readonly admission: Admission,
    private readonly completions: Completions,
    private readonly figures: InferenceFigures,
    private readonly deadlines: Deadlines,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.keepAlive = runtime.config.int('NEBO_INFERENCE_KEEP_ALIVE', 15, { min: 1 }) * 1_000;
    // Vendors end answers that nobody takes, and what is cut there is free: a client must not be the one who waits for that.
    this.clientIdle = runtime.config.int('NEBO_INFERENCE_CLIENT_IDLE', 45, { min: 1 }) * 1_000;
  }

  /** Answers a request of a door, past the framework. */
  answer({ path, id, identity, body, turns }: DirectRequest, response: ServerResponse): void {
    void this.run(this.formats.at(path), identity as InferenceIdentity, body, id, response, turns);
  }

  /** Answers a request that a controller has. */
  serve(
    format: Format,
    caller: InferenceIdentity,
    body: unknown,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    reply.hijack();
    return this.run(format, caller, body, String(request.id), reply.raw);
  }

  /** Answers in its format, errors included. Never throws. */
  private async run(
    format: Format,
    caller: InferenceIdentity,
    body: unknown,
    requestId: string,
    raw: ServerResponse,
    turns: Turns | null = null,
  ): Promise<void> {
    const gone = new Cancel();
    raw.once('close', () => {
      if (!raw.writableFinished) gone.cancel(new Error('the client left'));
    });
    let admitted: Admitted | undefined;
    try {
      const asked = format.read(body, this.catalogue, caller);
      if (turns) await turns.next();
      admitted = await this.admission.admit(asked.order, caller, requestId, gone);
      if (turns) await turns.next();
      if (asked.order.stream) await this.stream(format, asked, admitted, raw, gone);
      else await this.plain(format, asked, admitted, raw, gone);
    } catch (error) {
      // Whatever failed between the admission and the end of the run: nothing may stay held.
      if (admitted) this.completions.drop(admitted);
      this.fail(format, error, requestId, raw);
    }
  }

  private async plain(
    format: Format,
    asked: FormatRequest,
    admitted: Admitted,
    raw: ServerResponse,
    gone: Cancel,
  ): Promise<void> {
    const answer = asked.plain(admitted);
    const completed = await this.completions.run(admitted, { pieces: (pieces) => answer.add(pieces) }, gone);
    sendJson(raw, 200, answer.body(completed), {
      ...headersOf(format, admitted),
      'x-nebo-cost': formatRubles(completed.cost),
    });
  }

  private async stream(
    format: Format,
    asked: FormatRequest,
    admitted: Admitted,
    raw: ServerResponse,
    gone: Cancel,
  ): Promise<void> {
    const writer = asked.stream(admitted);
    const events = new EventReply(
      raw,
      headersOf(format, admitted),
      this.keepAlive,
      this.clientIdle,
      writer.beat,
      this.deadlines,
    );
    try {
      const completed = await this.completions.run(
        admitted,
        { pieces: (pieces) => events.write(writer.pieces(pieces)) },
        gone,
      );
      events.end(writer.end(completed));
    } catch (error) {
      events.close();
      if (!events.begun || error instanceof ClientGone) throw error;
      const answer = errorAnswer(error, admitted.requestId);
      this.figures.error(format.path, answer.body.error.code);
      this.runtime.log.error(
        { err: (error as Error).cause ?? error, request_id: admitted.requestId },
        'stream broke off',
      );
      events.end(writer.broken(inferenceErrorBody(format.path, answer)));
    }
  }

  private fail(format: Format, error: unknown, requestId: string, raw: ServerResponse): void {
    // There is nobody to answer; the connection is closed already.
    if (error instanceof ClientGone || raw.destroyed) return;
    if (format.requestIdHeader && !raw.headersSent) raw.setHeader(format.requestIdHeader, requestId);
    const answer = sendError(raw, error, requestId, (told) => inferenceErrorBody(format.path, told));
    this.figures.error(format.path, answer.body.error.code);
    if (answer.status >= 500) {
      const err = error instanceof ApiError ? (error.cause ?? error) : error;
      this.runtime.log.error({ err, request_id: requestId, path: format.path }, 'request failed');
    }
  }
}

function headersOf(
  { requestIdHeader }: Format,
  { order, operationId, requestId }: Admitted,
): Record<string, string> {
  return {
    'x-request-id': requestId,
    ...(requestIdHeader ? { [requestIdHeader]: requestId } : {}),
    'x-nebo-ledger-id': operationId,
    ...(order.offer.simulated ? { 'x-nebo-simulated': 'true' } : {}),
  };
}
