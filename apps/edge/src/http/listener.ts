import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import https from 'node:https';
import { type AddressInfo } from 'node:net';
import { type Duplex } from 'node:stream';
import { type SecureContext } from 'node:tls';
import { type EdgeMetrics } from '../observe/metrics.js';
import { MAX_HEADER_BYTES } from './admission.js';
import { rawError } from './errors.js';
import { type RequestHandler, wantsWebSocket } from './handler.js';

export interface ListenerOptions {
  handler: RequestHandler;
  metrics: EdgeMetrics;
  /** Milliseconds for the head of a request. */
  headersTimeoutMs: number;
  /** Milliseconds that an idle connection is kept. */
  keepAliveMs: number;
  /** Finds the secure context for a server name; absent on the plain listener. */
  secureContext?: (servername: string) => Promise<SecureContext | null>;
}

/** A plain or TLS listener of HTTP/1.1 with strict parsing and answers to what cannot be parsed. */
export function createListener(options: ListenerOptions): Server {
  const { handler, metrics, secureContext } = options;
  const secure = secureContext !== undefined;
  const httpOptions = {
    insecureHTTPParser: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    // Refused by admission, where the answer has a body.
    requireHostHeader: false,
    headersTimeout: options.headersTimeoutMs,
    // Uploads and streams may last as long as they move.
    requestTimeout: 0,
    keepAliveTimeout: options.keepAliveMs,
    connectionsCheckingInterval: Math.max(100, Math.min(2_000, options.headersTimeoutMs / 2)),
    noDelay: true,
    shouldUpgradeCallback: wantsWebSocket,
  };
  const server: Server = secureContext
    ? https.createServer({
        ...httpOptions,
        minVersion: 'TLSv1.2',
        ALPNProtocols: ['http/1.1'],
        handshakeTimeout: 10_000,
        // No default certificate: without a name that is served here, the handshake fails and shows nothing.
        SNICallback: (servername, done) => {
          secureContext(servername).then(
            (context) => done(null, context ?? undefined),
            (error: Error) => done(error),
          );
        },
      })
    : http.createServer(httpOptions);
  // 0 = no silent truncation of headers: more than the limit is refused instead.
  server.maxHeadersCount = 0;
  server.timeout = 0;

  const running = new WeakMap<Duplex, Set<ServerResponse>>();
  const ended = new WeakSet<Duplex>();
  const answersOf = (socket: Duplex): ServerResponse[] => [...(running.get(socket) ?? [])];
  // Node parses all requests that have arrived, also those behind one whose answer says `Connection: close`. They must not
  // be carried out: after a refusal they may be what was smuggled.
  const isEnded = (socket: Duplex): boolean => ended.has(socket) || answersOf(socket).some(saysClose);

  server.on('request', (req: IncomingMessage, res: ServerResponse) => {
    const { socket } = req;
    if (isEnded(socket)) return;
    const answers = running.get(socket) ?? new Set();
    running.set(socket, answers.add(res));
    res.once('close', () => {
      answers.delete(res);
      if (saysClose(res)) ended.add(socket);
    });
    // Whatever goes wrong with one answer must not end the process, and with it all others.
    handler.handle(req, res, secure).catch(() => socket.destroy());
  });
  // `Expect: 100-continue` is answered by Node; anything else is refused by the RFC, here with a body.
  server.on('checkExpectation', (req: IncomingMessage, res: ServerResponse) => {
    ended.add(req.socket);
    req.socket.write(rawError(417, 'expectation_failed', 'This expectation cannot be met.'));
    res.destroy();
    req.socket.end();
  });
  server.on('upgrade', (req, socket, head) => {
    // An upgrade behind an answer under way would write into the midst of it.
    if (isEnded(socket) || answersOf(socket).length > 0) socket.destroy();
    else handler.upgrade(req, socket, head, secure).catch(() => socket.destroy());
  });
  server.on('connect', (_req, socket: Duplex) => {
    socket.on('error', () => undefined);
    socket.end(rawError(405, 'method_not_allowed', 'This is not a proxy.'));
  });
  server.on('tlsClientError', (_error, socket) => {
    metrics.handshakeFailed();
    socket.destroy();
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const [status, code, message] = parserError(error.code);
    metrics.parserRefused(status);
    const answers = answersOf(socket);
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
  return server;
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

/**
 * Starts listening.
 * @param port 0 for any free one
 * @param host undefined for all addresses
 * @returns the port
 * @throws with code EADDRINUSE and others of `listen`
 */
export function listen(server: Server, port: number, host: string | undefined): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/**
 * Stops accepting, lets running answers end and then cuts what is left.
 * @param graceMs time for running answers
 */
export async function close(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  const cut = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(cut);
}
