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

/** What of a service in this process its callers use. */
export interface LocalService {
  fastify: Pick<FastifyInstance, 'inject'>;
  handle(request: IncomingMessage, response: ServerResponse): void;
}

/** A Fastify of its own as such a service. */
export const localService = (fastify: FastifyInstance): LocalService => ({
  fastify,
  handle: (request, response) => fastify.routing(request, response),
});

/** A service in this process: it takes the gateway's request and response as they are. */
export class LocalTarget implements ServiceTarget {
  constructor(private readonly service: () => LocalService) {}

  forward(request: IncomingMessage, response: ServerResponse): void {
    this.service().handle(request, response);
  }

  async call({ method, path, headers, body, signal }: TargetCall): Promise<TargetAnswer> {
    const answer = await this.service().fastify.inject({
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

/** Requests that one process may have under way at another, streams included; further ones wait. */
const mostConnections = 8_192;

/** A service in another process, over keep-alive connections without limits on streams. */
export class RemoteTarget implements ServiceTarget {
  private readonly pool: Pool;

  constructor(readonly url: string) {
    this.pool = new Pool(new URL(url).origin, {
      // A stream has its connection for as long as it lasts: what waits for a free one would wait for minutes.
      connections: mostConnections,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 30_000,
      factory: (origin, options) => new Client(origin, { ...options, connect: { timeout: 2_000 } }),
    });
  }

  forward(request: IncomingMessage, response: ServerResponse, onError: (error: unknown) => void): void {
    const headers: string[] = [];
    for (const name in request.headers) {
      const value = request.headers[name];
      if (value === undefined || hopByHop.has(name) || name === 'expect') continue;
      if (typeof value === 'string') headers.push(name, value);
      else for (const one of value) headers.push(name, one);
    }
    const hasBody =
      request.headers['content-length'] !== undefined || request.headers['transfer-encoding'] !== undefined;
    this.pool.dispatch(
      {
        method: request.method as Dispatcher.HttpMethod,
        path: request.url!,
        headers,
        body: hasBody ? detached(request) : null,
      },
      new Passage(response, onError),
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
 * One answer on its way through the gateway: its pieces are written as they come, with the client's own pace. Written by
 * hand, since undici's `stream` sends head and body apart, and each write to a socket costs as much as all else here.
 */
class Passage implements Dispatcher.DispatchHandler {
  private controller: Dispatcher.DispatchController | undefined;
  private left = false;
  /** Bytes of the body that are still to come; NaN: nobody knows. */
  private awaited = NaN;

  constructor(
    private readonly response: ServerResponse,
    private readonly onError: (error: unknown) => void,
  ) {
    response.once('close', () => {
      if (response.writableFinished) return;
      this.left = true;
      this.controller?.abort(new Error('the client left'));
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.left) controller.abort(new Error('the client left'));
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    const out: Record<string, string | string[]> = {};
    for (const name in headers) {
      const value = headers[name];
      if (value !== undefined && !hopByHop.has(name)) out[name] = value;
    }
    this.response.writeHead(status, out);
    const length = headers['content-length'];
    if (length !== undefined) this.awaited = Number(length);
    // Event streams must reach the client before their first event; a body of known length is on its way already.
    else this.response.flushHeaders();
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.awaited -= chunk.length;
    if (this.awaited === 0) {
      // As text, so that node:http writes it together with the head; latin1 leaves bytes as they are.
      this.response.end(chunk.toString('latin1'), 'latin1');
    } else if (!this.response.write(chunk)) {
      controller.pause();
      this.response.once('drain', () => controller.resume());
    }
  }

  onResponseEnd(): void {
    if (!this.response.writableEnded) this.response.end();
  }

  onResponseError(_: Dispatcher.DispatchController | null, error: Error): void {
    if (!this.left) this.onError(error);
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
