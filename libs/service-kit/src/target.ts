import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { PassThrough, type Readable } from 'node:stream';
import { Http1Pool, Http1Reactor, type Http1Target } from '@nebo/http1';
import type { FastifyInstance } from 'fastify';
import { Client, Pool, type Dispatcher } from 'undici';
import { Passage } from './passage.js';

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

/** Requests that one process may have under way at another, streams included. */
const mostConnections = 8_192;
const connectMs = 2_000;
const idleMs = 30_000;

/**
 * A service in another process, over kept connections without limits on streams. What is handed on, nearly all that there is,
 * goes by `libs/http1`; what is asked for itself by undici, which answers with a stream.
 */
export class RemoteTarget implements ServiceTarget {
  private readonly pool: Pool;
  private readonly reactor = new Http1Reactor();
  private readonly forwarding: Http1Pool;
  private readonly host: string;
  private readonly target: Http1Target;
  private forwarded = 0;

  /** @param most requests under way at once */
  constructor(
    readonly url: string,
    private readonly most = mostConnections,
  ) {
    const { origin, host, hostname, port } = new URL(url);
    this.host = host;
    this.target = { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? 80 : Number(port) };
    this.pool = new Pool(origin, {
      connections: most,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: idleMs,
      factory: (to, options) => new Client(to, { ...options, connect: { timeout: connectMs } }),
    });
    this.forwarding = new Http1Pool({
      reactor: this.reactor,
      connect: (to, onread) => connect({ ...to, onread, noDelay: true, keepAlive: true }),
      connectMs,
      answerMs: Infinity,
      idleMs,
    });
  }

  forward(request: IncomingMessage, response: ServerResponse, onError: (error: unknown) => void): void {
    // A stream has its connection for as long as it lasts: what waited for a free one would wait for minutes.
    if (this.forwarded >= this.most)
      return onError(new Error(`${this.most} requests are under way at ${this.host}`));
    this.forwarded += 1;
    const passage = new Passage(request, response, onError, () => (this.forwarded -= 1));
    passage.begin(this.forwarding, this.target, this.host);
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
    this.forwarding.destroy();
    this.reactor.stop();
    await this.pool.close();
  }
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
