import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import { identityHeader } from '@nebo/contracts';
import { activeTraceparent, withSpan } from '@nebo/telemetry';
import { ApiError, unavailable } from './errors.js';
import { RUNTIME, type Runtime } from './runtime.js';
import { readText, type TargetAnswer } from './target.js';

/** How an internal operation is called. */
export interface PeerCall {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** Whose work it is; null for work of all accounts. */
  account: string | null;
  body?: unknown;
  /** Makes the call idempotent at the other side; a fresh one when absent. */
  operationId?: string;
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** Injection token of the calling service's name. */
export const SERVICE_NAME = Symbol('nebo:service-name');

/** Calls the internal operations of other services, signed by this one (interfaces.md, 1). */
@Injectable()
export class Peers {
  constructor(
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'targets' | 'signer'>,
    @Inject(SERVICE_NAME) private readonly me: string,
  ) {}

  /**
   * One internal operation with JSON in and out.
   * @throws ApiError what the other side answered (4xx, 5xx), or 503 `unavailable` when it could not be reached in time
   */
  async call<T>(service: string, path: string, call: PeerCall): Promise<T> {
    const answer = await this.raw(service, path, call);
    const text = await readText(answer.body).catch((cause: unknown) => {
      throw unavailable(`${service} broke off its answer`, cause);
    });
    if (answer.status >= 200 && answer.status < 300) return (text ? JSON.parse(text) : undefined) as T;
    throw answerError(service, answer.status, text);
  }

  /** The same without reading the answer: for bytes. */
  raw(service: string, path: string, call: PeerCall): Promise<TargetAnswer> {
    return withSpan(
      `call ${service}`,
      () => ({ 'nebo.from': this.me, 'url.path': path.split('?', 1)[0]! }),
      async (span) => {
        const answer = await this.send(service, path, call);
        span.setAttribute('http.response.status_code', answer.status);
        return answer;
      },
      { kind: 'client' },
    );
  }

  private async send(service: string, path: string, call: PeerCall): Promise<TargetAnswer> {
    // A timer that ends with the call: that of `AbortSignal.timeout` goes off later for every call that went well.
    const limit = new AbortController();
    const timer = setTimeout(
      () => limit.abort(new DOMException('no answer in time', 'TimeoutError')),
      call.timeoutMs ?? 2_000,
    ).unref();
    const signal = call.signal ? AbortSignal.any([call.signal, limit.signal]) : limit.signal;
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    const trace = activeTraceparent();
    try {
      const answer = await this.runtime.targets.get(service).call({
        method: call.method ?? (body === undefined ? 'GET' : 'POST'),
        path,
        headers: {
          [identityHeader]: this.runtime.signer.signOften({
            kind: 'service',
            service: this.me,
            account_id: call.account,
          }),
          'x-nebo-operation': call.operationId ?? randomUUID(),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(trace === null ? {} : { traceparent: trace }),
        },
        ...(body === undefined ? {} : { body }),
        signal,
      });
      // The bytes are part of it.
      answer.body.once('close', () => clearTimeout(timer));
      return answer;
    } catch (cause) {
      clearTimeout(timer);
      call.signal?.throwIfAborted();
      throw unavailable(`${service} does not answer`, cause);
    }
  }
}

function answerError(service: string, status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string; details?: unknown } };
    const { code, message, details } = error;
    // Figures of a refusal are for the caller; fields of a body are named for whoever sent it.
    const more = details && !Array.isArray(details) ? { fields: { details } } : {};
    // What a peer cannot do now is not this service's inside, but its words may be.
    if (status < 500 || status === 503) return new ApiError(status, code, message, more);
  } catch {
    // Not one of our bodies: told below.
  }
  return unavailable(`${service} failed`, new Error(`${service} answered ${status}: ${text.slice(0, 500)}`));
}
