import { Http2ServerResponse } from 'node:http2';
import { type OutgoingHttpHeader, type OutgoingHttpHeaders } from 'node:http';

/** Belong to a connection of HTTP/1.1; an answer of HTTP/2 that has them is malformed (RFC 9113 section 8.2.2). */
const FORBIDDEN = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

type Heads = OutgoingHttpHeaders | OutgoingHttpHeader[];

/**
 * An answer of HTTP/2 that can be used like one of HTTP/1.1, so that what makes answers need not know the difference: reason
 * phrases and fields of the connection are left out, and `destroyed` is the stream's.
 */
export class Http2Answer extends Http2ServerResponse {
  /** Bytes of the body so far; the connection's own count is that of all its requests. */
  bytes = 0;

  override setHeader(name: string, value: number | string | readonly string[]): this {
    if (!FORBIDDEN.has(name.toLowerCase())) super.setHeader(name, value);
    return this;
  }

  override writeHead(status: number, message?: unknown, headers?: unknown): this {
    const given = (typeof message === 'object' && message !== null ? message : headers) as Heads | undefined;
    super.writeHead(status, allowed(given) as OutgoingHttpHeaders);
    return this;
  }

  override write(chunk: string | Uint8Array, ...rest: unknown[]): boolean {
    this.bytes += typeof chunk === 'string' ? Buffer.byteLength(chunk) : chunk.length;
    return (super.write as (...all: unknown[]) => boolean).call(this, chunk, ...rest);
  }
}

// Their setters and getters of the base warn about HTTP/2 or are not there.
Object.defineProperties(Http2Answer.prototype, {
  statusMessage: { get: () => '', set: () => undefined },
  // A stream that its client has reset is ended, too, but nobody has read it.
  writableFinished: {
    get(this: Http2Answer) {
      return this.stream.writableFinished && !this.stream.aborted;
    },
  },
  destroyed: {
    get(this: Http2Answer) {
      return this.stream.destroyed;
    },
  },
});

function allowed(given: Heads | undefined): Heads {
  if (given === undefined) return {};
  if (!Array.isArray(given))
    return Object.fromEntries(Object.entries(given).filter(([name]) => !FORBIDDEN.has(name.toLowerCase())));
  const flat: OutgoingHttpHeader[] = [];
  for (let i = 0; i < given.length; i += 2)
    if (!FORBIDDEN.has(String(given[i]).toLowerCase())) flat.push(given[i]!, given[i + 1]!);
  return flat;
}
