import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Client, type Dispatcher, Pool } from 'undici';
import { sendError } from '../http/errors.js';
import { cut } from '../http/cut.js';
import { requestHeaders } from '../http/headers.js';
import { type EdgeMetrics } from '../observe/metrics.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { Attempt } from './attempt.js';
import { Balancer, originOf } from './balancer.js';
import { type Body, detached } from './body.js';
import { Connections } from './connections.js';
import { classify } from './failure.js';

/** May be sent twice without harm (RFC 9110 section 9.2.2). */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS']);

export interface ProxyRequest {
  authority: string;
  /** Path and query, as received. */
  url: string;
  secure: boolean;
  requestId: string;
  hasBody: boolean;
}

/** What became of a forwarded request, for the access log. */
export interface ProxyTrace {
  replicaId: string | null;
  retries: number;
}

/** A replica that was woken for one request, beside which there is none. */
export interface Woken {
  replica: Replica;
  dispatcher: Dispatcher;
  /**
   * The replica took no connection, and nothing of the request was read: asks for it anew.
   * @throws WakeFailed when there is none
   */
  again: () => Promise<{ replica: Replica; dispatcher: Dispatcher }>;
}

export interface ProxyOptions {
  /** Milliseconds for a TCP connection to a replica. */
  connectTimeoutMs: number;
  /** Milliseconds without the head of an answer (not counted while the request's body is being sent). */
  answerTimeoutMs: number;
}

/** Forwards requests to replicas: bodies are streamed both ways with back-pressure, nothing is buffered or re-encoded. */
export class Proxy {
  readonly balancer = new Balancer();
  private readonly connections: Connections;
  private readonly connectionOptions: Client.Options;

  constructor(
    private readonly options: ProxyOptions,
    private readonly metrics: EdgeMetrics,
  ) {
    this.connectionOptions = {
      pipelining: 1,
      allowH2: false,
      connect: { timeout: options.connectTimeoutMs },
      headersTimeout: options.answerTimeoutMs,
      bodyTimeout: 0,
      keepAliveTimeout: 4_000,
      maxHeaderSize: 64 * 1024,
    };
    this.connections = new Connections(this.connectionOptions);
  }

  /** Closes all connections to replicas, running requests included. */
  async stop(): Promise<void> {
    await this.connections.stop();
  }

  /** Connections to one replica alone. */
  connect(replica: Replica): Dispatcher {
    return new Pool(originOf(replica), { ...this.connectionOptions, connections: null });
  }

  /**
   * Answers a request from a replica. Resolves when the exchange is over; rejects only when `woken.again` does, with
   * nothing answered.
   */
  forward(
    req: IncomingMessage,
    res: ServerResponse,
    route: Extract<LiveRoute, { kind: 'replicas' }>,
    request: ProxyRequest,
    trace: ProxyTrace,
    woken?: Woken,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      this.attempt({
        req,
        res,
        route,
        request,
        trace,
        woken,
        headers: requestHeaders(req, request),
        tried: [],
        dispatcher: woken?.dispatcher,
        chosen: woken?.replica,
        resolve,
        reject,
      });
    });
  }

  private attempt(one: Forwarding): void {
    const { req, res, request } = one;
    const replica = one.chosen ?? this.balancer.choose(one.route, one.tried) ?? one.tried.at(-1)!;
    one.tried.push(replica);
    one.trace.replicaId = replica.id;
    const body = request.hasBody ? detached(req) : null;
    const origin = originOf(replica);
    const own = one.dispatcher ? null : this.connections.take(origin);
    new Attempt({
      req,
      res,
      requestId: request.requestId,
      body,
      onAnswer: () => this.balancer.answered(replica),
      onEnd: (error, isWhole) => {
        if (own) this.connections.give(origin, own, isWhole);
        if (error === null) one.resolve();
        else this.failed(one, replica, body, error);
      },
    }).start((one.dispatcher ?? own)!, {
      origin,
      path: request.url,
      method: req.method as Dispatcher.HttpMethod,
      headers: one.headers,
      body,
    });
  }

  /** Tries again where nothing can have been done twice, otherwise says what went wrong. */
  private failed(one: Forwarding, replica: Replica, body: Body | null, error: unknown): void {
    const { req, res, route, request, trace, tried, woken } = one;
    if (res.destroyed || res.headersSent) {
      // The head has gone out: only a cut connection tells the client that the rest is missing.
      cut(res);
      return one.resolve();
    }
    const failure = classify(error);
    this.metrics.upstreamFailed(failure.reason);
    if (failure.notSent) this.balancer.refused(replica);
    const method = req.method ?? '';
    const repeatable = !request.hasBody && IDEMPOTENT.has(method);
    const another = route.replicas.length > tried.length;
    // A hang-up says less than a refusal (the request may have been carried out), so only reads are repeated after one.
    const again = repeatable && ((failure.notSent && another) || (failure.hungUp && SAFE.has(method)));
    const anew = woken && failure.notSent && !(body?.begun ?? false);
    if (tried.length < (anew ? 3 : 2) && (again || anew)) {
      trace.retries++;
      this.metrics.retried();
      if (!anew) return this.attempt(one);
      woken.again().then(({ replica: chosen, dispatcher }) => {
        this.attempt(Object.assign(one, { chosen, dispatcher }));
      }, one.reject);
      return;
    }
    const { status, code, message } = failure;
    sendError(req, res, {
      status,
      code,
      message,
      requestId: request.requestId,
      close: request.hasBody && !req.complete,
    });
    one.resolve();
  }
}

/** A request on its way, over all its attempts. */
interface Forwarding {
  req: IncomingMessage;
  res: ServerResponse;
  route: Extract<LiveRoute, { kind: 'replicas' }>;
  request: ProxyRequest;
  trace: ProxyTrace;
  woken: Woken | undefined;
  headers: string[];
  tried: Replica[];
  /** Connections of a hold; absent: the edge's own. */
  dispatcher: Dispatcher | undefined;
  chosen: Replica | undefined;
  resolve: () => void;
  reject: (error: unknown) => void;
}
