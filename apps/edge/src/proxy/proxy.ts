import { type IncomingMessage, type ServerResponse } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';
import { Agent, type Dispatcher, Pool } from 'undici';
import { sendError } from '../http/errors.js';
import { requestHeaders, responseHeaders } from '../http/headers.js';
import { type EdgeMetrics } from '../observe/metrics.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { addressOf, Balancer } from './balancer.js';
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
  private readonly agent: Agent;
  private readonly agentOptions: Pool.Options;

  constructor(
    private readonly options: ProxyOptions,
    private readonly metrics: EdgeMetrics,
  ) {
    this.agentOptions = {
      // Plain connections to replicas, as many as there are requests: an open stream must never make another one wait.
      connections: null,
      pipelining: 1,
      allowH2: false,
      connect: { timeout: options.connectTimeoutMs },
      headersTimeout: options.answerTimeoutMs,
      bodyTimeout: 0,
      keepAliveTimeout: 4_000,
      maxHeaderSize: 64 * 1024,
    } satisfies Agent.Options;
    this.agent = new Agent(this.agentOptions);
  }

  /** Closes all connections to replicas, running requests included. */
  async stop(): Promise<void> {
    await this.agent.destroy();
  }

  /** Connections to one replica alone. */
  connect(replica: Replica): Dispatcher {
    return new Pool(`http://${addressOf(replica)}`, this.agentOptions);
  }

  /**
   * Answers a request from a replica. Resolves when the exchange is over; rejects only when `woken.again` does, with
   * nothing answered.
   */
  async forward(
    req: IncomingMessage,
    res: ServerResponse,
    route: Extract<LiveRoute, { kind: 'replicas' }>,
    request: ProxyRequest,
    trace: ProxyTrace,
    woken?: Woken,
  ): Promise<void> {
    const repeatable = !request.hasBody && IDEMPOTENT.has(req.method ?? '');
    const headers = requestHeaders(req, request);
    const tried: Replica[] = [];
    let dispatcher = woken?.dispatcher ?? this.agent;
    let chosen = woken?.replica;
    for (;;) {
      const replica = chosen ?? this.balancer.choose(route, tried) ?? tried.at(-1)!;
      tried.push(replica);
      trace.replicaId = replica.id;
      const body = request.hasBody ? detached(req) : null;
      const error = await this.attempt(req, res, replica, headers, request, body, dispatcher);
      if (error === null) return;
      if (res.destroyed || res.headersSent) {
        // The head has gone out: only a cut connection tells the client that the rest is missing.
        res.destroy();
        return;
      }
      const failure = classify(error);
      this.metrics.upstreamFailed(failure.reason);
      if (failure.notSent) this.balancer.refused(replica);
      const another = route.replicas.length > tried.length;
      // A hang-up says less than a refusal (the request may have been carried out), so only reads are repeated after one.
      const again =
        repeatable && ((failure.notSent && another) || (failure.hungUp && SAFE.has(req.method ?? '')));
      const anew = woken && failure.notSent && !(body?.begun ?? false);
      if (tried.length < (anew ? 3 : 2) && (again || anew)) {
        trace.retries++;
        this.metrics.retried();
        if (anew) ({ replica: chosen, dispatcher } = await woken.again());
        continue;
      }
      const { status, code, message } = failure;
      sendError(req, res, {
        status,
        code,
        message,
        requestId: request.requestId,
        close: request.hasBody && !req.complete,
      });
      return;
    }
  }

  /** @returns null when the exchange ended or the client left, otherwise the error */
  private attempt(
    req: IncomingMessage,
    res: ServerResponse,
    replica: Replica,
    headers: string[],
    request: ProxyRequest,
    body: Body | null,
    dispatcher: Dispatcher,
  ): Promise<unknown> {
    return new Promise((resolve) => {
      let controller: Dispatcher.DispatchController | null = null;
      let clientLeft = false;

      const onClose = (): void => {
        if (res.writableFinished) return;
        clientLeft = true;
        controller?.abort(new Error('the client left'));
        body?.destroy();
        // Not yet on a connection: the handler aborts as soon as it is.
        if (!controller) end(null);
      };
      const onDrain = (): void => controller?.resume();
      const end = (error: unknown): void => {
        res.off('close', onClose);
        res.off('drain', onDrain);
        resolve(error);
      };
      res.on('close', onClose);
      res.on('drain', onDrain);
      if (res.destroyed) return onClose();

      const balancer = this.balancer;
      const handler: Dispatcher.DispatchHandler = {
        onRequestStart(started) {
          controller = started;
          if (clientLeft) started.abort(new Error('the client left'));
        },
        onResponseStart(running, status, _parsed, statusText) {
          // Interim answers (100, 103) concern this hop only.
          if (status < 200) return;
          balancer.answered(replica);
          const raw = flatHeaders(running.rawHeaders);
          const out = responseHeaders(raw);
          if (!out.some((name, i) => i % 2 === 0 && name.toLowerCase() === 'x-request-id')) {
            out.push('X-Request-Id', request.requestId);
          }
          try {
            res.writeHead(status, statusText, out as unknown as Record<string, string>);
          } catch (error) {
            running.abort(error as Error);
            return;
          }
          // The head of a stream must not wait for its first event.
          if (req.method !== 'HEAD') res.flushHeaders();
        },
        onResponseData(running, chunk) {
          if (!res.write(chunk)) running.pause();
        },
        onResponseEnd() {
          res.end();
          // Over for the client only when the last byte is out; until then a leaving client still counts as one.
          end(null);
        },
        onResponseError(_controller, error) {
          end(clientLeft ? null : error);
        },
      };
      try {
        dispatcher.dispatch(
          {
            origin: `http://${addressOf(replica)}`,
            path: request.url,
            method: req.method as Dispatcher.HttpMethod,
            headers,
            body,
          },
          handler,
        );
      } catch (error) {
        end(error);
      }
    });
  }
}

/** A request's body, and whether any of it was taken from the socket's side. */
type Body = Readable & { begun: boolean };

/**
 * The body of a request as a stream of its own. undici destroys a body when an exchange fails; destroying the request itself
 * would cut the client's connection before the error page is out. Nothing is read before somebody reads it: as long as no
 * replica has taken a connection, another one can be given the whole.
 */
function detached(req: IncomingMessage): Body {
  const body = new LazyBody(req);
  req.once('close', () => {
    if (!req.complete) body.destroy(new Error('the client left'));
  });
  // An error here is reported through undici; without a listener it would end the process.
  body.on('error', () => undefined);
  return body;
}

class LazyBody extends PassThrough {
  begun = false;

  constructor(private readonly source: IncomingMessage) {
    super();
  }

  override _read(size: number): void {
    if (!this.begun) {
      this.begun = true;
      this.source.pipe(this);
    }
    super._read(size);
  }
}

/** undici's raw headers (name, value, …) as text; header bytes are Latin-1. */
function flatHeaders(raw: Dispatcher.DispatchController['rawHeaders']): string[] {
  if (Array.isArray(raw)) return raw.map((one) => (typeof one === 'string' ? one : one.toString('latin1')));
  const flat: string[] = [];
  for (const [name, value] of Object.entries(raw ?? {})) {
    for (const one of Array.isArray(value) ? value : [value ?? '']) flat.push(name, one);
  }
  return flat;
}
