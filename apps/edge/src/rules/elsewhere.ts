import { type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { SafeNetFailed, SafeNetRefused, type SafeClient, type SafeRequest } from '@nebo/safe-net';
import { sendError } from '../http/errors.js';
import { requestHeaders, responseHeaders } from '../http/headers.js';

/** Bytes of a request's body that goes elsewhere: it is held in memory, since the guarded client sends no streams. */
const mostSent = 10 * 1024 * 1024;
const limits = { maxBytes: 100 * 1024 * 1024, timeoutMs: 60_000, maxRedirects: 0 };
/** Says that an edge has sent it: rules that lead to each other would otherwise run for ever. */
const hop = 'x-nebo-rewritten';

export interface ElsewhereRequest {
  origin: string;
  /** Path and query. */
  url: string;
  authority: string;
  secure: boolean;
  requestId: string;
  hasBody: boolean;
}

/** Answers requests from addresses outside that rules name, through the client that reaches public addresses only. */
export class Elsewhere {
  private held = 0;

  /** @param mostHeld bytes of all bodies together that are held at a time: visitors must not fill the edge's memory */
  constructor(
    private readonly client: SafeClient,
    private readonly mostHeld = 256 * 1024 * 1024,
  ) {}

  async answer(req: IncomingMessage, res: ServerResponse, request: ElsewhereRequest): Promise<void> {
    const { requestId } = request;
    const refuse = (status: number, code: string, message: string) =>
      sendError(req, res, { status, code, message, requestId, close: request.hasBody && !req.complete });
    if (req.headers[hop] !== undefined)
      return refuse(508, 'rewrite_loop', 'A rewrite of this site leads back to a site here.');
    const parts: Buffer[] = [];
    let size = 0;
    // A body that comes so slowly holds what others need.
    const late = setTimeout(() => res.destroy(), limits.timeoutMs);
    try {
      if (request.hasBody)
        // Left early it must not be destroyed: the refusal goes over the same connection.
        for await (const part of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
          size += part.length;
          this.held += part.length;
          if (size > mostSent)
            return refuse(
              413,
              'body_too_large',
              `A body that a rewrite sends elsewhere has at most ${mostSent} bytes.`,
            );
          if (this.held > this.mostHeld)
            return refuse(503, 'edge_busy', 'Too many bodies are on their way at once. Try again.');
          parts.push(part);
        }
      clearTimeout(late);
      await this.pass(req, res, request, request.hasBody ? Buffer.concat(parts.splice(0)) : null, refuse);
    } finally {
      clearTimeout(late);
      this.held -= size;
    }
  }

  private async pass(
    req: IncomingMessage,
    res: ServerResponse,
    request: ElsewhereRequest,
    body: Buffer | null,
    refuse: (status: number, code: string, message: string) => void,
  ): Promise<void> {
    const gone = new AbortController();
    const left = () => gone.abort(new Error('the client left'));
    res.once('close', left);
    try {
      const answer = await this.client.stream(request.origin + request.url, {
        ...limits,
        method: req.method ?? 'GET',
        headers: headersOf(req, request),
        signal: gone.signal,
        ...(body === null ? {} : ({ body } satisfies SafeRequest)),
      });
      const raw = Object.entries(answer.headers).flatMap(([name, value]) =>
        value === undefined ? [] : [value].flat().flatMap((one) => [name, one]),
      );
      const out = responseHeaders(raw);
      if (answer.headers['x-request-id'] === undefined) out.push('X-Request-Id', request.requestId);
      res.writeHead(answer.status, out as unknown as Record<string, string>);
      await pipeline(answer.body, res);
    } catch (error) {
      if (gone.signal.aborted || res.headersSent) return void res.destroy();
      if (error instanceof SafeNetRefused)
        return refuse(
          502,
          'rewrite_refused',
          'The address that a rewrite of this site names may not be reached from here.',
        );
      if (error instanceof SafeNetFailed)
        return refuse(
          error.kind === 'timeout' ? 504 : 502,
          'rewrite_failed',
          'The address that a rewrite of this site names does not answer.',
        );
      throw error;
    } finally {
      res.off('close', left);
    }
  }
}

function headersOf(req: IncomingMessage, request: ElsewhereRequest): Record<string, string> {
  const flat = requestHeaders(req, request);
  const headers: Record<string, string> = { [hop]: '1' };
  for (let index = 0; index < flat.length; index += 2) {
    const name = flat[index]!.toLowerCase();
    // Host and length are those of the new request.
    if (name === 'host' || name === 'content-length') continue;
    headers[name] = headers[name] === undefined ? flat[index + 1]! : `${headers[name]}, ${flat[index + 1]!}`;
  }
  return headers;
}
