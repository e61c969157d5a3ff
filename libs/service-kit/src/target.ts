import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import { Client, Pool, type Dispatcher } from 'undici';

/** A call from one service to another. */
export interface TargetCall {
  method: string;
  /** Path with query. */
  path: string;
  headers: Record<string, string>;
  body?: string | Buffer | Readable;
  signal?: AbortSignal;
}

export interface TargetAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Readable;
}

/** Where a service answers: in this process, or behind a URL. The callers do not know the difference. */
export interface ServiceTarget {
  /**
   * Hands a client's request on and streams the answer back; nothing is parsed or buffered. A client that leaves aborts
   * the work behind. The request's headers are those that the service shall see.
   */
  forward(request: IncomingMessage, response: ServerResponse, onError: (error: unknown) => void): void;
  /** Calls an internal operation. */
  call(call: TargetCall): Promise<TargetAnswer>;
  close(): Promise<void>;
}

/** A service in this process: its Fastify takes the gateway's request and response as they are. */
export class LocalTarget implements ServiceTarget {
  constructor(private readonly service: () => FastifyInstance) {}

  forward(request: IncomingMessage, response: ServerResponse): void {
    this.service().routing(request, response);
  }

  async call({ method, path, headers, body, signal }: TargetCall): Promise<TargetAnswer> {
    const answer = await this.service().inject({
      method: method as 'GET',
      url: path,
      headers,
      ...(body !== undefined ? { payload: body } : {}),
      ...(signal ? { signal } : {}),
      payloadAsStream: true,
    });
    return {
      status: answer.statusCode,
      headers: answer.headers as IncomingHttpHeaders,
      body: answer.stream(),
    };
  }

  async close(): Promise<void> {}
}

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** A service in another process, over keep-alive connections without limits on streams. */
export class RemoteTarget implements ServiceTarget {
  private readonly pool: Pool;

  constructor(readonly url: string) {
    this.pool = new Pool(new URL(url).origin, {
      connections: 128,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 30_000,
      factory: (origin, options) => new Client(origin, { ...options, connect: { timeout: 2_000 } }),
    });
  }

  forward(request: IncomingMessage, response: ServerResponse, onError: (error: unknown) => void): void {
    const abort = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished) abort.abort();
    });
    const headers: Record<string, string | string[]> = {};
    for (const [name, value] of Object.entries(request.headers)) {
      if (value !== undefined && !hopByHop.has(name) && name !== 'expect') headers[name] = value;
    }
    const hasBody =
      request.headers['content-length'] !== undefined || request.headers['transfer-encoding'] !== undefined;
    this.pool.stream(
      {
        method: request.method as Dispatcher.HttpMethod,
        path: request.url!,
        headers,
        body: hasBody ? detached(request) : null,
        signal: abort.signal,
      },
      ({ statusCode, headers: answered }) => {
        const out: Record<string, string | string[]> = {};
        for (const [name, value] of Object.entries(answered)) {
          if (value !== undefined && !hopByHop.has(name)) out[name] = value;
        }
        response.writeHead(statusCode, out);
        // Event streams must reach the client before their first event.
        response.flushHeaders();
        return response;
      },
      (error) => {
        if (error && !abort.signal.aborted) onError(error);
      },
    );
  }

  async call({ method, path, headers, body, signal }: TargetCall): Promise<TargetAnswer> {
    const answer = await this.pool.request({
      method: method as Dispatcher.HttpMethod,
      path,
      headers,
      body: body ?? null,
      ...(signal ? { signal } : {}),
    });
    return { status: answer.statusCode, headers: answer.headers, body: answer.body };
  }

  async close(): Promise<void> {
    await this.pool.close();
  }
}

/**
 * The body of a request as a stream of its own: undici destroys a body whose upstream fails, and with the request itself the
 * client would lose the connection on which the error is to be told.
 */
function detached(request: IncomingMessage): Readable {
  const body = new PassThrough();
  request.once('close', () => {
    if (!request.complete) body.destroy(new Error('the client left'));
  });
  // An error is told through undici's callback; without a listener it would end the process.
  body.on('error', () => undefined);
  return request.pipe(body);
}

/** An empty readable, for answers without a body. */
export const emptyBody = (): Readable => new PassThrough().end();

/** Reads a stream as text, refusing more than `limit` bytes. */
export async function readText(body: Readable, limit = 4 * 1024 * 1024): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit) throw new RangeError(`an answer of more than ${limit} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
