import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Duplex } from 'node:stream';
import { type AccessHook } from '../observe/access.js';
import { type EdgeLogger } from '../observe/logger.js';
import { type EdgeMetrics } from '../observe/metrics.js';
import { type Proxy, type ProxyOptions, type ProxyRequest } from '../proxy/proxy.js';
import { forwardWebSocket, wantsWebSocket, type WebSocketOutcome } from '../proxy/websocket.js';
import { type WebSocketClient } from '../proxy/websocket-client.js';
import { type LiveRoute, type Snapshot } from '../routes/snapshot.js';
import { type FileCache } from '../static/file-cache.js';
import { AppliedRules } from '../rules/rules.js';
import { type Elsewhere } from '../rules/elsewhere.js';
import { isThere } from '../static/resolve.js';
import { serveStatic } from '../static/serve.js';
import { type AcmeChallenges, mayBeChallenge } from './acme-challenges.js';
import { admit, type Admitted } from './admission.js';
import { type Connection } from './connection.js';
import { forwardToSleepy, isSleepy, type SleepyRoute, upgradeToSleepy } from '../wake/on-demand.js';
import { wakeError } from '../wake/answers.js';
import { WakeFailed, type Waker } from '../wake/waker.js';
import { sendError } from './errors.js';
import { accessEntry, beginExchange, type Exchange, note, protocolOf } from './exchange.js';

/** Seconds after which a visitor of an app that is not running may try again. */
const RETRY_AFTER = 5;

export interface HandlerParts {
  snapshot: () => Snapshot | null;
  cache: FileCache;
  proxy: Proxy;
  proxyOptions: ProxyOptions;
  /** For apps that sleep. */
  waker: Waker;
  /** For rewrites that lead outside. */
  outside: Elsewhere;
  challenges: AcmeChallenges;
  metrics: EdgeMetrics;
  logger: EdgeLogger;
  onAccess: AccessHook | undefined;
  /** True while the edge is being stopped: connections are not kept. */
  draining: () => boolean;
}

/** Answers requests: admission, route, then files, replicas or a page of the edge's own. */
export class RequestHandler {
  private readonly webSockets = new Set<Duplex>();

  constructor(private readonly parts: HandlerParts) {}

  /** Open WebSocket connections; the server no longer knows them. */
  get openWebSockets(): ReadonlySet<Duplex> {
    return this.webSockets;
  }

  /**
   * For the server's `request` event. Never throws.
   * @param settled told when the answer is over, one way or the other
   */
  handle(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    settled?: (req: IncomingMessage, res: ServerResponse) => void,
  ): void {
    const exchange = beginExchange(req, connection.secure, this.parts.onAccess !== undefined);
    res.on('close', () => {
      settled?.(req, res);
      this.finish(req, res, res.headersSent ? res.statusCode : 499, !res.writableFinished, exchange);
    });
    if (this.parts.draining()) res.shouldKeepAlive = false;
    this.begin(req, res, connection, exchange);
  }

  private begin(req: IncomingMessage, res: ServerResponse, connection: Connection, exchange: Exchange): void {
    try {
      const admitted = this.admit(req, res, connection, exchange);
      // What is done at once makes no promise: this is what every request goes through.
      if (admitted)
        this.answer(req, res, admitted, exchange)?.catch((error: unknown) =>
          this.failed(req, res, error, exchange),
        );
    } catch (error) {
      this.failed(req, res, error, exchange);
    }
  }

  /** For WebSockets, whose answer is not a message. */
  async upgrade(req: IncomingMessage, client: WebSocketClient, connection: Connection): Promise<void> {
    client.stream.on('error', () => undefined);
    const { secure } = connection;
    const exchange = beginExchange(req, secure, this.parts.onAccess !== undefined);
    const plainly = (): ServerResponse => {
      const res = client.plainly();
      res.once('close', () =>
        this.finish(req, res, res.headersSent ? res.statusCode : 499, !res.writableFinished, exchange),
      );
      return res;
    };
    // Admission answers refusals itself, so it needs a response; a successful upgrade never does.
    const verdict = admit(req, connection);
    const live = verdict.ok ? this.parts.snapshot()?.find(verdict.host) : undefined;
    if (!verdict.ok || live?.kind !== 'replicas') {
      this.begin(req, plainly(), connection, exchange);
      return;
    }
    note(exchange, verdict, live);
    // A WebSocket follows no redirect and has no headers of its own; where it is answered from is for the rules to say.
    const rewritten = live.router ? new AppliedRules(live.router, req, verdict).rewrite() : null;
    const url = rewritten?.origin === null ? rewritten.url : verdict.url;
    const { requestId } = exchange;
    await this.openWebSocket(req, client, { ...verdict, url, secure, requestId }, exchange, plainly);
  }

  private async openWebSocket(
    req: IncomingMessage,
    client: WebSocketClient,
    request: ProxyRequest & { host: string },
    exchange: Exchange,
    plainly: () => ServerResponse,
  ): Promise<void> {
    const { metrics } = this.parts;
    const { requestId } = exchange;
    const { stream } = client;
    const outcome = await this.forwardWebSocket(req, client, request, exchange);
    switch (outcome.kind) {
      case 'open':
        this.webSockets.add(stream);
        metrics.webSockets(this.webSockets.size);
        await outcome.closed;
        this.webSockets.delete(stream);
        metrics.webSockets(this.webSockets.size);
        this.finish(req, null, 101, false, exchange);
        return;
      case 'failed': {
        metrics.upstreamFailed(outcome.failure.reason);
        const { status, code, message } = outcome.failure;
        sendError(req, plainly(), { status, code, message, requestId, close: true });
        return;
      }
      case 'asleep':
        sendError(req, plainly(), wakeError(outcome.why, requestId, true));
        return;
      default:
        // Nobody reads it any more, so nobody would see its end.
        if (outcome.kind === 'left') stream.destroy();
        this.finish(
          req,
          null,
          outcome.kind === 'answered' ? outcome.status : 499,
          outcome.kind === 'left',
          exchange,
        );
    }
  }

  /** Goes where the route leads now; while it waits for a sleeping app that may change. */
  private async forwardWebSocket(
    req: IncomingMessage,
    client: WebSocketClient,
    request: ProxyRequest & { host: string },
    exchange: Exchange,
  ): Promise<WebSocketOutcome | { kind: 'asleep'; why: WakeFailed }> {
    const { proxy, proxyOptions, waker } = this.parts;
    const { host } = request;
    for (;;) {
      const live = this.parts.snapshot()?.find(host);
      if (live?.kind !== 'replicas') return { kind: 'asleep', why: new WakeFailed('unknown', 5_000) };
      exchange.live = live;
      const { trace } = exchange;
      if (!isSleepy(live))
        return forwardWebSocket(req, client, live, request, proxy.balancer, proxyOptions, trace);
      const parts = { waker, proxy, options: proxyOptions };
      const still = () => this.leadsTo(host, live.wake.id);
      const held = await upgradeToSleepy(parts, req, client, live, request, trace, still);
      if (held.kind === 'done') return held.value;
      if (held.kind === 'left') return held;
      if (still()) return { kind: 'asleep', why: held.why };
    }
  }

  private leadsTo(host: string, replicaId: string): boolean {
    const live = this.parts.snapshot()?.find(host);
    return live?.kind === 'replicas' && live.wake?.id === replicaId;
  }

  private admit(
    req: IncomingMessage,
    res: ServerResponse,
    connection: Connection,
    exchange: Exchange,
  ): Admitted | null {
    const verdict = admit(req, connection);
    if (verdict.ok) return verdict;
    const { status, code, message } = verdict;
    // What was malformed once may hide a second request in what follows.
    sendError(req, res, { status, code, message, requestId: exchange.requestId, close: true });
    return null;
  }

  private answer(
    req: IncomingMessage,
    res: ServerResponse,
    admitted: Admitted,
    exchange: Exchange,
  ): Promise<void> | undefined {
    const { requestId } = exchange;
    const close = admitted.hasBody;
    const snapshot = this.parts.snapshot();
    const live = snapshot?.find(admitted.host);
    note(exchange, admitted, live ?? null);
    if (!snapshot) {
      const message = 'This edge is starting.';
      sendError(req, res, { status: 503, code: 'edge_starting', message, requestId, retryAfter: 1, close });
      return undefined;
    }
    if (!mayBeChallenge(admitted.url)) return this.answerApp(req, res, admitted, live, exchange);
    return this.parts.challenges
      .answer(req, res, admitted.host, admitted.url)
      .then((done) => (done ? undefined : this.answerApp(req, res, admitted, live, exchange)));
  }

  private answerApp(
    req: IncomingMessage,
    res: ServerResponse,
    admitted: Admitted,
    live: LiveRoute | undefined,
    exchange: Exchange,
  ): Promise<void> | undefined {
    const { requestId } = exchange;
    if (!live) {
      const message = 'Nothing is served under this name.';
      sendError(req, res, {
        status: 404,
        code: 'unknown_host',
        message,
        requestId,
        close: admitted.hasBody,
      });
      return undefined;
    }
    const rules = live.kind !== 'none' && live.router ? new AppliedRules(live.router, req, admitted) : null;
    if (rules?.begin(res, requestId)) return undefined;
    const isFile = live.kind === 'static' && isThere(live.site, admitted.url.split('?', 1)[0]!);
    const rewritten = isFile ? null : (rules?.rewrite() ?? null);
    const { host, authority, hasBody } = admitted;
    const url = rewritten?.url ?? admitted.url;
    const { secure } = exchange;
    const request: ProxyRequest & Admitted = { ok: true, host, authority, url, hasBody, secure, requestId };
    if (rewritten && rewritten.origin !== null) {
      const { origin } = rewritten;
      return this.parts.outside.answer(req, res, { ...request, origin });
    }
    return this.serve(req, res, live, request, exchange);
  }

  /** From files, from replicas, or by saying why not. */
  private serve(
    req: IncomingMessage,
    res: ServerResponse,
    live: LiveRoute,
    request: ProxyRequest & Admitted,
    exchange: Exchange,
  ): Promise<void> | undefined {
    const { requestId } = exchange;
    switch (live.kind) {
      case 'static':
        return serveStatic(req, res, live.site, this.parts.cache, request);
      case 'none':
        sendError(req, res, {
          status: 503,
          code: 'app_not_running',
          message: live.reason,
          requestId,
          retryAfter: RETRY_AFTER,
          close: request.hasBody,
        });
        return undefined;
      case 'replicas':
        if (isSleepy(live)) return this.serveSleepy(req, res, live, request, exchange);
        this.parts.proxy.forward(req, res, live, request, exchange.trace);
        return undefined;
    }
  }

  private async serveSleepy(
    req: IncomingMessage,
    res: ServerResponse,
    live: SleepyRoute,
    request: ProxyRequest & Admitted,
    exchange: Exchange,
  ): Promise<void> {
    const { proxy, waker } = this.parts;
    const { host } = request;
    const still = () => this.leadsTo(host, live.wake.id);
    const held = await forwardToSleepy({ waker, proxy }, req, res, live, request, exchange.trace, still);
    if (held.kind !== 'failed') return;
    const next = still() ? undefined : this.parts.snapshot()?.find(host);
    if (!next) return sendError(req, res, wakeError(held.why, exchange.requestId, request.hasBody));
    // While it waited, another version took over.
    note(exchange, request, next);
    await this.serve(req, res, next, request, exchange);
  }

  private failed(req: IncomingMessage, res: ServerResponse, error: unknown, exchange: Exchange): void {
    // A client that leaves in the middle of a file is no fault of ours.
    if (!isPeerGone(error)) {
      this.parts.logger.error(
        { err: error, request_id: exchange.requestId },
        'a request could not be answered',
      );
    }
    const message = 'Something went wrong here.';
    sendError(req, res, {
      status: 500,
      code: 'internal',
      message,
      requestId: exchange.requestId,
      close: true,
    });
  }

  private finish(
    req: IncomingMessage,
    res: ServerResponse | null,
    status: number,
    aborted: boolean,
    exchange: Exchange,
  ): void {
    const took = performance.now() - exchange.began;
    this.parts.metrics.answered(exchange.kind, status, protocolOf(req), took / 1000);
    const { onAccess } = this.parts;
    if (!onAccess) return;
    const entry = accessEntry(req, res, exchange, { status, aborted, took });
    try {
      onAccess(entry);
    } catch (error) {
      this.parts.logger.error({ err: error }, 'the access log hook failed');
    }
  }
}

/** For the server's `shouldUpgradeCallback`. */
export { wantsWebSocket };

function isPeerGone(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? '';
  return ['ERR_STREAM_PREMATURE_CLOSE', 'ECONNRESET', 'EPIPE', 'ERR_STREAM_DESTROYED'].includes(code);
}
