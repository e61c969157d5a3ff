import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Agent, type Dispatcher } from 'undici';
import type { Route } from '../catalogue/catalogue.js';
import { upstreamLimits } from './limits.js';
import { type Upstream, type UpstreamAnswer, UpstreamError } from './upstream.js';

/** Bytes of an error answer that are read for the log and the client. */
const errorBytes = 64 * 1024;

/** Vendors over HTTP. Addresses are the operator's, so private ones are as good as others. */
@Injectable()
export class HttpUpstream implements Upstream, OnApplicationShutdown {
  private readonly agent: Agent;

  constructor(@Inject(RUNTIME) runtime: Pick<Runtime, 'config'>) {
    const { connect } = upstreamLimits(runtime.config);
    // undici's own limits of 300 s would end long answers (inference-wire.md, 1.7).
    this.agent = new Agent({
      connect: { timeout: connect },
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 30_000,
    });
  }

  async open(route: Route, body: Record<string, unknown>, signal: AbortSignal): Promise<UpstreamAnswer> {
    const { provider } = route;
    const url = new URL(`${provider.baseUrl}/chat/completions`);
    let answer: Dispatcher.ResponseData;
    try {
      answer = await this.agent.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'text/event-stream',
          'accept-encoding': 'identity',
          ...(provider.apiKey === null ? {} : { authorization: `Bearer ${provider.apiKey}` }),
        },
        body: JSON.stringify(body),
        signal,
      });
    } catch (cause) {
      signal.throwIfAborted();
      throw new UpstreamError('unreachable', `${provider.name}: ${(cause as Error).message}`, { cause });
    }
    if (answer.statusCode !== 200) throw await refusal(route, answer);
    const contentType = String(answer.headers['content-type'] ?? '')
      .split(';', 1)[0]!
      .trim()
      .toLowerCase();
    return { contentType, body: answer.body };
  }

  async onApplicationShutdown(): Promise<void> {
    await this.agent.destroy();
  }
}

async function refusal({ provider }: Route, answer: Dispatcher.ResponseData): Promise<UpstreamError> {
  const status = answer.statusCode;
  const text = await readSome(answer.body);
  const retryAfter = Number(answer.headers['retry-after']);
  return new UpstreamError('refused', `${provider.name} answered ${status}: ${text.slice(0, 1_000)}`, {
    status,
    ...(retryAfter > 0 && retryAfter < 3_600 ? { retryAfter: Math.ceil(retryAfter) } : {}),
    publicMessage: refusalWords(text, provider.apiKey),
  });
}

async function readSome(body: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of body) {
      parts.push(part);
      size += part.length;
      if (size > errorBytes) break;
    }
  } catch {
    // What arrived is what there is to tell.
  }
  return Buffer.concat(parts).toString('utf8');
}

/** `error.message` of the usual error body, without the operator's key should the vendor repeat it. */
export function refusalWords(text: string, apiKey: string | null): string {
  let words = '';
  try {
    const body = JSON.parse(text) as { error?: { message?: unknown } | string; message?: unknown };
    const message = typeof body.error === 'string' ? body.error : (body.error?.message ?? body.message);
    if (typeof message === 'string') words = message;
  } catch {
    // Not JSON: nothing for the client.
  }
  return (apiKey ? words.replaceAll(apiKey, '********') : words).slice(0, 500);
}
