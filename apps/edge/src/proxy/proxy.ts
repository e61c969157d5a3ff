import { type IncomingMessage, type ServerResponse } from 'node:http';
import { connect as connectSocket } from 'node:net';
import { Http1Pool, Http1Reactor } from '@nebo/http1';
import { sendError } from '../http/errors.js';
import { cut } from '../http/cut.js';
import { requestHeaders } from '../http/headers.js';
import { type EdgeMetrics } from '../observe/metrics.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { Attempt, type AttemptOwner } from './attempt.js';
import { Balancer } from './balancer.js';
import { classify } from './failure.js';

/** May be sent twice without harm (RFC 9110 section 9.2.2). */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS']);

/** Milliseconds that a connection to a replica is kept idle; less where the app says so. */
const IDLE_MS = 4_000;
/**
 * The same for what may not be repeated: an app that closes a connection in the very moment in which a request is sent leaves
 * it open whether that was carried out, and apps close after some whole number of seconds.
 */
const IDLE_UNSAFE_MS = 750;

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
  pool: Http1Pool<Replica>;
  /** The replica hung up on the request. */
  hungUp: () => void;
  /**
   * The replica took no connection, and nothing of the request was read: asks for it anew.
   * @throws WakeFailed when there is none
   */
  again: () => Promise<{ replica: Replica; pool: Http1Pool<Replica> }>;
}

export interface ProxyOptions {
  /** Milliseconds for a TCP connection to a replica. */
  connectTimeoutMs: number;
  /** Milliseconds without the head of an answer (not counted while the request's body is being sent). */
  answerTimeoutMs: number;
  /** So many answers of apps are given a content coding at once; others go out as the app made them. */
  codedAnswers: number;
}

/** Forwards requests to replicas: bodies are streamed both ways with back-pressure, nothing is kept. */
export class Proxy implements AttemptOwner<Forwarding> {
  readonly balancer = new Balancer();
  private readonly reactor: Http1Reactor;
  private readonly pool: Http1Pool<Replica>;
  private coded = 0;

  constructor(
    private readonly options: ProxyOptions,
    private readonly metrics: EdgeMetrics,
  ) {
    const shortest = Math.min(options.connectTimeoutMs, options.answerTimeoutMs);
    this.reactor = new Http1Reactor(Math.max(20, Math.min(250, shortest / 4)));
    this.pool = this.connect();
  }

  /** Closes all connections to replicas, running requests included. */
  stop(): void {
    this.pool.destroy();
    this.reactor.stop();
  }

  /** Connections of their own. */
  connect(): Http1Pool<Replica> {
    return new Http1Pool<Replica>({
      reactor: this.reactor,
      connect: ({ host, port }, onread) =>
        connectSocket({
          host,
          port,
          onread,
          noDelay: true,
          keepAlive: true,
          keepAliveInitialDelay: 60_000,
        }),
      connectMs: this.options.connectTimeoutMs,
      answerMs: this.options.answerTimeoutMs,
      idleMs: IDLE_MS,
    });
  }

  /**
   * Answers a request from one of a route's replicas. Nobody is told of the end but by the answer itself: a promise for each
   * request would be one of its larger parts.
   */
  forward(
    req: IncomingMessage,
    res: ServerResponse,
    route: Extract<LiveRoute, { kind: 'replicas' }>,
    request: ProxyRequest,
    trace: ProxyTrace,
  ): void {
    this.attempt({
      req,
      res,
      route,
      request,
      trace,
      woken: undefined,
      headers: requestHeaders(req, request),
      tried: [],
      pool: this.pool,
      chosen: undefined,
      resolve: nothing,
      reject: nothing,
    });
  }

  /**
   * Answers a request from a replica that was woken for it. Resolves when the exchange is over; rejects only when
   * `woken.again` does, with nothing answered.
   */
  forwardWoken(
    req: IncomingMessage,
    res: ServerResponse,
    route: Extract<LiveRoute, { kind: 'replicas' }>,
    request: ProxyRequest,
    trace: ProxyTrace,
    woken: Woken,
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
        pool: woken.pool,
        chosen: woken.replica,
        resolve,
        reject,
      });
    });
  }

  private attempt(one: Forwarding): void {
    const { req, request } = one;
    const replica = one.chosen ?? this.balancer.choose(one.route, one.tried) ?? one.tried.at(-1)!;
    one.tried.push(replica);
    one.trace.replicaId = replica.id;
    const method = req.method ?? 'GET';
    const isSafe = SAFE.has(method);
    const attempt = new Attempt(one, replica, this);
    const start = (): void =>
      attempt.start(
        one.pool,
        { method, path: request.url, headers: one.headers, body: request.hasBody ? req : null },
        // What is repeated does not go where it may fail for the same reason.
        one.tried.length > 1 ? 0 : isSafe ? IDLE_MS : IDLE_UNSAFE_MS,
      );
    if (isSafe) start();
    // The end of an idle connection may have arrived with this request and be read after it: what may not be repeated lets
    // all be read first.
    else setImmediate(start);
  }

  answered(replica: Replica): void {
    this.balancer.answered(replica);
  }

  takeCoder(): boolean {
    if (this.coded >= this.options.codedAnswers) return false;
    this.coded++;
    return true;
  }

  giveCoderBack(): void {
    this.coded--;
  }

  ended(one: Forwarding, replica: Replica, error: unknown): void {
    if (error === null) one.resolve();
    else this.failed(one, replica, error);
  }

  /** Tries again where nothing can have been done twice, otherwise says what went wrong. */
  private failed(one: Forwarding, replica: Replica, error: unknown): void {
    const { req, res, route, request, trace, tried, woken } = one;
    const failure = classify(error);
    if (failure.hungUp) woken?.hungUp();
    if (res.destroyed || res.headersSent) {
      // The head has gone out: only a cut connection tells the client that the rest is missing.
      cut(res);
      return one.resolve();
    }
    this.metrics.upstreamFailed(failure.reason);
    if (failure.notSent) this.balancer.refused(replica);
    const method = req.method ?? '';
    const repeatable = !request.hasBody && IDEMPOTENT.has(method);
    const another = route.replicas.length > tried.length;
    // A hang-up says less than a refusal (the request may have been carried out), so only reads are repeated after one.
    const again = repeatable && ((failure.notSent && another) || (failure.hungUp && SAFE.has(method)));
    // Nothing of a body is read before there is a connection.
    const anew = woken && failure.notSent;
    if (tried.length < (anew ? 3 : 2) && (again || anew)) {
      trace.retries++;
      this.metrics.retried();
      if (!anew) return this.attempt(one);
      woken.again().then(({ replica: chosen, pool }) => {
        this.attempt(Object.assign(one, { chosen, pool }));
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

const nothing = (): void => undefined;

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
  /** The edge's own connections, or those of a hold. */
  pool: Http1Pool<Replica>;
  chosen: Replica | undefined;
  resolve: () => void;
  reject: (error: unknown) => void;
}
