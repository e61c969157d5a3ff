import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type ServerResponse } from 'node:http';
import http2, {
  constants,
  type Http2Server,
  type Http2ServerRequest,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { type TLSSocket } from 'node:tls';
import { type EdgeMetrics } from '../observe/metrics.js';
import { MAX_HEADER_BYTES, MAX_HEADERS } from './admission.js';
import { Http2WebSocket } from '../proxy/websocket-client.js';
import { CoalescedConnection } from './connection.js';
import { sendError } from './errors.js';
import { type RequestHandler } from './handler.js';
import { Http2Answer } from './http2-answer.js';
import { type StalledBodies } from './stalled-bodies.js';

/** Bounds of one connection of HTTP/2. */
export interface Http2Limits {
  /** Requests at a time. */
  http2Streams: number;
  /** Streams that a client may reset: so many at once, and so many a second (CVE-2023-44487). */
  http2ResetBurst: number;
  http2ResetRate: number;
  /** MiB that one connection may hold in buffers. */
  http2SessionMemory: number;
}

/** How long a connection that was told to end may take for it when nothing is under way. */
const LINGER_MS = 1_000;

type Server = Http2Server<
  typeof IncomingMessage,
  typeof ServerResponse,
  typeof Http2ServerRequest,
  typeof Http2Answer
>;

/** Connections of HTTP/2, each with its requests, on sockets whose handshake is done. */
export class Http2Sessions {
  private readonly server: Server;
  private readonly sessions = new Map<ServerHttp2Session, Conversation>();
  private closing = false;
  private taken: TLSSocket | null = null;

  constructor(
    private readonly handler: RequestHandler,
    private readonly metrics: EdgeMetrics,
    limits: Http2Limits,
    private readonly idleMs: number,
    private readonly bodies: StalledBodies,
  ) {
    this.server = http2.createServer({
      maxSessionMemory: limits.http2SessionMemory,
      streamResetBurst: limits.http2ResetBurst,
      streamResetRate: limits.http2ResetRate,
      // Frames that break the rules, and streams over the limit, until the connection ends.
      maxSessionInvalidFrames: 100,
      maxSessionRejectedStreams: 100,
      maxSettings: 32,
      maxOutstandingPings: 10,
      // A little more than is admitted: what is over by little gets an answer that says so.
      maxHeaderListPairs: MAX_HEADERS + 28,
      settings: {
        maxConcurrentStreams: limits.http2Streams,
        maxHeaderListSize: 2 * MAX_HEADER_BYTES,
        // What a client may send before somebody has read it, for each of its requests.
        initialWindowSize: 256 * 1024,
        enableConnectProtocol: true,
      },
      Http2ServerResponse: Http2Answer,
    });
    this.server.on('session', (session) => this.opened(session));
    this.server.on('sessionError', (_error, session) => session.destroy());
    this.server.on('request', (req, res) => this.requested(req, res));
    this.server.on('connect', (req, res) => this.connected(req, res));
    this.server.on('checkExpectation', (req, res) => this.requested(req, res));
  }

  /** Speaks HTTP/2 on a TLS connection that has chosen it. */
  take(socket: TLSSocket): void {
    // The session is made, and told of, before this returns.
    this.taken = socket;
    this.server.emit('connection', socket);
  }

  /**
   * Tells connections that are used for some hosts to end: requests under way are answered, new ones go over a new
   * connection, with the certificate of today.
   */
  retire(serves: (host: string) => boolean): void {
    for (const [session, { connection }] of this.sessions) if (connection.isFor(serves)) session.close();
  }

  /** Ends all connections; requests under way have `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.closing = true;
    const ended = [...this.sessions.keys()].map(
      (session) => new Promise((resolve) => session.once('close', resolve)),
    );
    for (const session of this.sessions.keys()) session.close();
    const cut = setTimeout(() => {
      for (const { socket } of this.sessions.values()) socket.destroy();
    }, graceMs);
    await Promise.all(ended);
    clearTimeout(cut);
  }

  private opened(session: ServerHttp2Session): void {
    // The session's own view of it refuses to be destroyed.
    const socket = this.taken!;
    this.taken = null;
    const connection = new CoalescedConnection(socket);
    const conversation: Conversation = { socket, connection, active: 0 };
    this.sessions.set(session, conversation);
    this.metrics.http2Sessions(this.sessions.size);
    session.once('close', () => {
      this.sessions.delete(session);
      this.metrics.http2Sessions(this.sessions.size);
    });
    // A connection on which nothing moves: streams that wait for an app keep it.
    session.setTimeout(this.idleMs, () => {
      if (conversation.active > 0) return;
      session.close();
      // A head that has no end, or a client that does not read, would keep it open.
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    });
    if (this.closing) session.close();
  }

  private requested(req: Http2ServerRequest, res: Http2Answer): void {
    const one = this.begin(req.stream);
    if (!one) return;
    // Http2Answer makes good where the two protocols differ.
    const [asked, answer] = [req as unknown as IncomingMessage, res as unknown as ServerResponse];
    if (!req.stream.endAfterHeaders) this.bodies.watch(asked, answer);
    this.handler.handle(asked, answer, one.connection);
  }

  /** CONNECT: a WebSocket over HTTP/2 (RFC 8441), and nothing else. */
  private connected(req: Http2ServerRequest, res: Http2Answer): void {
    const { stream } = req;
    const one = this.begin(stream);
    if (!one) return;
    const answer = res as unknown as ServerResponse;
    const client = new Http2WebSocket(req, answer);
    if (req.headers[':protocol'] === 'websocket')
      this.handler
        .upgrade(req as unknown as IncomingMessage, client, one.connection)
        .catch(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR));
    else
      sendError(req as unknown as IncomingMessage, answer, {
        ...(req.headers[':protocol'] === undefined
          ? { status: 405, code: 'method_not_allowed', message: 'This is not a proxy.' }
          : { status: 501, code: 'not_supported', message: 'Only WebSockets are opened over HTTP/2.' }),
        requestId: randomUUID(),
      });
  }

  private begin(stream: ServerHttp2Stream): Conversation | null {
    const one = stream.session && this.sessions.get(stream.session as ServerHttp2Session);
    if (!one) {
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      return null;
    }
    one.active += 1;
    stream.once('close', () => (one.active -= 1));
    return one;
  }
}

interface Conversation {
  socket: TLSSocket;
  connection: CoalescedConnection;
  /** Streams that are open. */
  active: number;
}
