import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import https from 'node:https';
import { type AddressInfo } from 'node:net';
import { type Duplex } from 'node:stream';
import { type SecureContext, type TLSSocket } from 'node:tls';
import { type EdgeMetrics } from '../observe/metrics.js';
import { MAX_HEADER_BYTES } from './admission.js';
import { type Connection, PlainConnection, TlsConnection } from './connection.js';
import { rawError } from './errors.js';
import { type RequestHandler, wantsWebSocket } from './handler.js';
import { Http1WebSocket } from '../proxy/websocket-client.js';
import { Http2Sessions, type Http2Limits } from './http2.js';
import { StalledBodies } from './stalled-bodies.js';

export interface ListenerOptions {
  handler: RequestHandler;
  metrics: EdgeMetrics;
  /** Milliseconds for the head of a request. */
  headersTimeoutMs: number;
  /** Milliseconds that an idle connection is kept. */
  keepAliveMs: number;
  /** Milliseconds in which something of a request's body has to come. */
  bodyStallMs: number;
}

export interface SecureOptions extends ListenerOptions {
  /** Finds the secure context for a server name. */
  secureContext: (servername: string) => Promise<SecureContext | null>;
  http2: Http2Limits;
}

/** A listener of one port, with strict parsing and answers to what cannot be parsed. */
export interface Listener {
  /**
   * Starts listening.
   * @param port 0 for any free one
   * @param host undefined for all addresses
   * @returns the port
   * @throws with code EADDRINUSE and others of `listen`
   */
  listen(port: number, host: string | undefined): Promise<number>;
  /**
   * Stops accepting, lets running answers end and then cuts what is left.
   * @param graceMs time for running answers
   */
  close(graceMs: number): Promise<void>;
}

/** HTTP/1.1 without TLS. */
export function createListener(options: ListenerOptions): Listener {
  const server = http.createServer(httpOptions(options));
  const bodies = new StalledBodies(options.bodyStallMs);
  serveHttp1(server, options, bodies, () => new PlainConnection());
  return {
    listen: (port, host) => listen(server, port, host),
    close: (graceMs) => close(server, graceMs).finally(() => bodies.stop()),
  };
}

/** HTTP/1.1 and HTTP/2 over TLS: the client chooses in the handshake (ALPN). */
export function createSecureListener(
  options: SecureOptions,
): Listener & { retire: (serves: (host: string) => boolean) => void } {
  const { secureContext, metrics } = options;
  const bodies = new StalledBodies(options.bodyStallMs);
  const sessions = new Http2Sessions(
    options.handler,
    options.metrics,
    options.http2,
    options.keepAliveMs,
    bodies,
  );
  const server = https.createServer({
    ...httpOptions(options),
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: 10_000,
    // No default certificate: without a name that is served here, the handshake fails and shows nothing.
    SNICallback: (servername, done) => {
      secureContext(servername).then(
        (context) => done(null, context ?? undefined),
        (error: Error) => done(error),
      );
    },
  });
  serveHttp1(server, options, bodies, (socket) => new TlsConnection(socket as TLSSocket));
  // One handshake for both, and each protocol on the server that is made for it.
  const [http1] = server.listeners('secureConnection') as [(socket: TLSSocket) => void];
  server.removeListener('secureConnection', http1);
  server.on('secureConnection', (socket: TLSSocket) => {
    if (socket.alpnProtocol === 'h2') sessions.take(socket);
    else http1.call(server, socket);
  });
  server.on('tlsClientError', (_error, socket) => {
    metrics.handshakeFailed();
    socket.destroy();
  });
  return {
    listen: (port, host) => listen(server, port, host),
    close: async (graceMs) => {
      // Closed first: a server is not closed as long as it has connections.
      const ended = sessions.close(graceMs);
      await Promise.all([close(server, graceMs), ended]);
      bodies.stop();
    },
    retire: (serves) => sessions.retire(serves),
  };
}

function httpOptions({ headersTimeoutMs, keepAliveMs }: ListenerOptions): http.ServerOptions {
  return {
    insecureHTTPParser: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    // Refused by admission, where the answer has a body.
    requireHostHeader: false,
    headersTimeout: headersTimeoutMs,
    // Uploads and streams may last as long as they move (`StalledBodies`).
    requestTimeout: 0,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: Math.max(100, Math.min(2_000, headersTimeoutMs / 2)),
    noDelay: true,
    shouldUpgradeCallback: wantsWebSocket,
  };
}

/** Requests at a time on one connection of HTTP/1.1, as many as on one of HTTP/2: each may have a connection to an app. */
const MAX_REQUESTS = 128;
/** Requests that may follow the last one that is answered; they are not carried out, but Node keeps them. */
const MAX_PASSED_OVER = 1_000;

/** What is under way on one connection of HTTP/1.1. */
interface Conversation {
  connection: Connection;
  answers: ServerResponse[];
  /** An answer has said that nothing follows it. */
  isEnded: boolean;
  passedOver: number;
}

function serveHttp1(
  server: Server,
  options: ListenerOptions,
  bodies: StalledBodies,
  connectionOf: (socket: Duplex) => Connection,
): void {
  const { handler, metrics } = options;
  // 0 = no silent truncation of headers: more than the limit is refused instead.
  server.maxHeadersCount = 0;
  server.timeout = 0;

  // On the socket itself: twice a request, a map of weak keys is looked through more slowly, and by the garbage collector, too.
  const key = Symbol('conversation');
  const conversationOf = (socket: Duplex & { [key]?: Conversation }): Conversation =>
    (socket[key] ??= { connection: connectionOf(socket), answers: [], isEnded: false, passedOver: 0 });
  // Node parses all requests that have arrived, also those behind one whose answer says `Connection: close`. They must not
  // be carried out: after a refusal they may be what was smuggled.
  const isEnded = ({ isEnded: ended, answers }: Conversation): boolean => ended || answers.some(saysClose);
  const settled = (req: IncomingMessage, res: ServerResponse): void => {
    const one = conversationOf(req.socket);
    one.answers.splice(one.answers.indexOf(res), 1);
    if (saysClose(res)) one.isEnded = true;
  };

  server.on('request', (req: IncomingMessage, res: ServerResponse) => {
    const one = conversationOf(req.socket);
    if (isEnded(one)) {
      if (++one.passedOver > MAX_PASSED_OVER) req.socket.destroy();
      return;
    }
    one.answers.push(res);
    if (one.answers.length >= MAX_REQUESTS) {
      // Whoever sends requests ahead has to send those behind a closed answer again (RFC 9112 section 9.3.2).
      one.isEnded = true;
      res.shouldKeepAlive = false;
    }
    if (mayHaveBody(req)) bodies.watch(req, res);
    handler.handle(req, res, one.connection, settled);
  });
  // `Expect: 100-continue` is answered by Node; anything else is refused by the RFC, here with a body.
  server.on('checkExpectation', (req: IncomingMessage, res: ServerResponse) => {
    conversationOf(req.socket).isEnded = true;
    req.socket.write(rawError(417, 'expectation_failed', 'This expectation cannot be met.'));
    res.destroy();
    req.socket.end();
  });
  server.on('upgrade', (req, socket, head) => {
    const one = conversationOf(socket);
    // An upgrade behind an answer under way would write into the midst of it.
    if (isEnded(one) || one.answers.length > 0) socket.destroy();
    else
      handler
        .upgrade(req, new Http1WebSocket(req, socket, head), one.connection)
        .catch(() => socket.destroy());
  });
  server.on('connect', (_req, socket: Duplex) => {
    socket.on('error', () => undefined);
    socket.end(rawError(405, 'method_not_allowed', 'This is not a proxy.'));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const [status, code, message] = parserError(error.code);
    metrics.parserRefused(status);
    const { answers } = conversationOf(socket);
    // With an answer under way, bytes of another would be read as a part of it. Only the very request that turned out to be
    // malformed in its body, and has no answer yet, gets this one.
    const only = answers.length === 1 && !answers[0]!.headersSent && !answers[0]!.req.complete;
    if (
      socket.destroyed ||
      !socket.writable ||
      error.code === 'ECONNRESET' ||
      (answers.length > 0 && !only)
    ) {
      socket.destroy();
      return;
    }
    socket.end(rawError(status, code, message), () => socket.destroy());
  });
}

function mayHaveBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

function saysClose(res: ServerResponse): boolean {
  return String(res.getHeader('connection') ?? '').toLowerCase() === 'close';
}

function parserError(code: string | undefined): [status: number, code: string, message: string] {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return [431, 'headers_too_large', `The headers may have at most ${MAX_HEADER_BYTES} bytes.`];
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return [408, 'request_timeout', 'The request did not arrive in time.'];
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return [413, 'chunk_extensions_too_large', 'The chunk extensions are too large.'];
    default:
      return [400, 'bad_request', 'The request is malformed.'];
  }
}

function listen(server: Server, port: number, host: string | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

async function close(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  const cut = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  // Connections that were cut say so a turn later; their requests are counted and logged then.
  await new Promise((resolve) => setTimeout(resolve, 10));
  clearInterval(idle);
  clearTimeout(cut);
}
