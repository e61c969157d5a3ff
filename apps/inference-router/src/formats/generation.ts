import type { ServerResponse } from 'node:http';
import { Inject, Injectable } from '@nestjs/common';
import { formatRubles, type InferenceIdentity } from '@nebo/contracts';
import { ApiError, errorAnswer, inferenceErrorBody, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Catalogue } from '../catalogue/catalogue.js';
import { type Admitted, Admission } from '../completions/admission.js';
import { ClientGone, Completions } from '../completions/completions.service.js';
import { EventReply } from './event-reply.js';
import type { Format, FormatRequest } from './format.js';

/** Carries out the requests of every format: read, admit, run, write. Answers on the raw response, errors included. */
@Injectable()
export class Generation {
  private readonly keepAlive: number;

  constructor(
    private readonly catalogue: Catalogue,
    private readonly admission: Admission,
    private readonly completions: Completions,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.keepAlive = runtime.config.int('NEBO_INFERENCE_KEEP_ALIVE', 15, { min: 1 }) * 1_000;
  }

  /** Answers a request in its format. Never throws. */
  async serve(
    format: Format,
    caller: InferenceIdentity,
    body: unknown,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    reply.hijack();
    const { raw } = reply;
    const requestId = String(request.id);
    const gone = new AbortController();
    raw.once('close', () => {
      if (!raw.writableFinished) gone.abort();
    });
    try {
      const asked = format.read(body, this.catalogue, caller);
      const admitted = await this.admission.admit(asked.order, caller, requestId);
      if (asked.order.stream) await this.stream(format, asked, admitted, raw, gone.signal);
      else await this.plain(asked, admitted, raw, gone.signal);
    } catch (error) {
      this.fail(format, error, requestId, raw);
    }
  }

  private async plain(
    asked: FormatRequest,
    admitted: Admitted,
    raw: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const answer = asked.plain(admitted);
    const completed = await this.completions.run(admitted, { pieces: (pieces) => answer.add(pieces) }, gone);
    sendJson(raw, 200, answer.body(completed), {
      ...headersOf(admitted),
      'x-nebo-cost': formatRubles(completed.cost),
    });
  }

  private async stream(
    format: Format,
    asked: FormatRequest,
    admitted: Admitted,
    raw: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const writer = asked.stream(admitted);
    const events = new EventReply(raw, headersOf(admitted), this.keepAlive, writer.beat);
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
    const answer = errorAnswer(error, requestId);
    if (answer.status >= 500) {
      const err = error instanceof ApiError ? (error.cause ?? error) : error;
      this.runtime.log.error({ err, request_id: requestId, path: format.path }, 'request failed');
    }
    if (raw.headersSent) {
      // A stream that fails in its middle must not look complete.
      raw.destroy();
      return;
    }
    sendJson(raw, answer.status, inferenceErrorBody(format.path, answer), {
      ...answer.headers,
      'x-request-id': requestId,
    });
  }
}

function headersOf({ order, operationId, requestId }: Admitted): Record<string, string> {
  return {
    'x-request-id': requestId,
    'x-nebo-ledger-id': operationId,
    ...(order.offer.simulated ? { 'x-nebo-simulated': 'true' } : {}),
  };
}

function sendJson(
  raw: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>>,
): void {
  const text = JSON.stringify(body);
  raw.writeHead(status, {
    ...headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(text),
  });
  raw.end(text);
}
