import {
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { chmod, rm } from 'node:fs/promises';
import { type AddressInfo, type Socket } from 'node:net';
import { Transform, type Duplex } from 'node:stream';
import { dialChecked, type DialOptions } from './dial.js';
import { SafeNetFailed, SafeNetRefused } from './errors.js';
import { bareName, checkUrl, type AllowList, type CheckedUrl } from './policy.js';

/** One line of the proxy's log: where something went, or which rule refused it. */
export interface EgressEntry {
  kind: 'connect' | 'http';
  /** `host:port` as asked. */
  target: string;
  outcome: 'open' | 'closed' | 'refused' | 'failed';
  rule?: string;
  /** Bytes to and from the target, when closed. */
  sent?: number;
  received?: number;
}

/** Settings of the egress proxy. */
export interface EgressOptions extends Pick<DialOptions, 'allow' | 'lookup' | 'dial'> {
  allow?: AllowList;
  /** Where to listen: an address (default 127.0.0.1, any port) or a unix socket's path (mode 0666). */
  listen?: { host?: string; port?: number } | { path: string };
  /** Ports for CONNECT; default 443. */
  connectPorts?: readonly number[];
  /** Ports for plain http; default 80. */
  httpPorts?: readonly number[];
  /** When given, only these names (`packages.example.org`, `*.index.example`) and the allow list can be reached. */
  only?: readonly string[];
  refuseNames?: readonly string[];
  /** Bytes of one tunnel or exchange, both directions together. Default 2 GiB. */
  maxBytes?: number;
  /** Milliseconds of one tunnel or exchange. Default 30 minutes. */
  timeoutMs?: number;
  /** Milliseconds without a byte. Default 60 s. */
  idleMs?: number;
  /** Connections at the same time; further ones are closed. Default 256. */
  maxConnections?: number;
  log?: (entry: EgressEntry) => void;
}

/** A running proxy. */
export interface EgressProxy {
  /** For `HTTP_PROXY` and `HTTPS_PROXY`; null on a unix socket. */
  readonly url: string | null;
  stop(): Promise<void>;
}

/** Headers of one connection, not of the message (RFC 9110 section 7.6.1). */
const hopByHop = [
  'connection',
  'proxy-connection',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'proxy-authorization',
  'proxy-authenticate',
  'proxy-authentication-info',
];

/**
 * A forward proxy for what has no network of its own (builds, replicas): `CONNECT host:443` and plain http in absolute
 * form, with the checks of the client. A refusal is 403 with the rule in a text body.
 */
export async function startEgressProxy(options: EgressOptions = {}): Promise<EgressProxy> {
  const log = options.log ?? (() => undefined);
  const open = new Set<Duplex>();
  const proxy = new Exchange(options, log);
  const server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 0 }, (request, response) => {
    proxy.forward(request, response).catch(() => response.destroy());
  });
  server.maxConnections = options.maxConnections ?? 256;
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    socket.on('error', () => undefined);
  });
  server.on('connect', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    proxy.connect(request, socket, head).catch(() => socket.destroy());
  });
  const listen = options.listen ?? {};
  const path = 'path' in listen ? listen.path : null;
  if (path !== null) await rm(path, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    if ('path' in listen) server.listen(listen.path, resolve);
    else server.listen(listen.port ?? 0, listen.host ?? '127.0.0.1', resolve);
  });
  if (path !== null) await chmod(path, 0o666);
  const at = server.address() as AddressInfo | string;
  const named = (host: string) => (host.includes(':') ? `[${host}]` : host);
  return {
    url: typeof at === 'string' ? null : `http://${named(at.address)}:${at.port}`,
    async stop() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}

class Exchange {
  constructor(
    private readonly options: EgressOptions,
    private readonly log: (entry: EgressEntry) => void,
  ) {}

  /** A tunnel: nothing of it is read, so only host, port, bytes and time can be bounded. */
  async connect(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const target = request.url ?? '';
    let upstream: Socket;
    const gone = goneSignal(socket);
    try {
      if (!/^(\[[0-9a-f:.]+\]|[^\s/?#@:\\[\]]+):\d{1,5}$/i.test(target)) {
        throw new SafeNetRefused('invalid_url', 'CONNECT needs host:port');
      }
      // https, so that the default port is the one CONNECT is for; `only` and the ports are checked alike.
      upstream = await this.dial(this.check(`https://${target}/`, this.options.connectPorts ?? [443]), gone);
    } catch (error) {
      const { status, rule, words } = this.say('connect', target, error);
      socket.on('error', () => undefined);
      socket.end(
        `HTTP/1.1 ${status} ${status === 403 ? 'Forbidden' : 'Bad Gateway'}\r\ncontent-type: text/plain; charset=utf-8\r\n` +
          `x-nebo-rule: ${rule}\r\nconnection: close\r\ncontent-length: ${Buffer.byteLength(words)}\r\n\r\n${words}`,
      );
      return;
    }
    this.log({ kind: 'connect', target, outcome: 'open' });
    const bound = this.bound([socket, upstream]);
    // A side that is gone without having said its end takes the other with it; after an end, what is buffered still goes.
    socket.once('close', () => socket.readableEnded || upstream.destroy());
    upstream.once('close', () => upstream.readableEnded || socket.destroy());
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (head.length > 0) upstream.write(head);
    socket.pipe(bound.counter('sent', head.length)).pipe(upstream);
    upstream.pipe(bound.counter('received')).pipe(socket);
    await Promise.all([closed(socket), closed(upstream)]);
    this.log({ kind: 'connect', target, outcome: 'closed', ...bound.end() });
  }

  /** One plain http exchange in absolute form; a redirect goes back to the client, who must ask again. */
  async forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = request.url ?? '';
    let target = text.slice(0, 200);
    let upstream: Socket;
    let checked: CheckedUrl;
    try {
      if (!/^http:\/\//i.test(text)) {
        throw new SafeNetRefused('scheme', 'this is a proxy: use CONNECT, or an absolute http:// URL');
      }
      checked = this.check(text, this.options.httpPorts ?? [80]);
      target = `${checked.host}:${checked.port}`;
      upstream = await this.dial(checked, goneSignal(response));
    } catch (error) {
      const { status, rule, words } = this.say('http', target, error);
      response.writeHead(status, {
        'content-type': 'text/plain; charset=utf-8',
        'x-nebo-rule': rule,
        connection: 'close',
      });
      response.end(words);
      return;
    }
    this.log({ kind: 'http', target, outcome: 'open' });
    const bound = this.bound([upstream, response]);
    const { url } = checked;
    const outgoing = httpRequest({
      method: request.method,
      path: url.pathname + url.search,
      headers: { ...endToEnd(request.headers), host: url.host, connection: 'close' },
      createConnection: () => upstream,
    });
    outgoing.on('error', () => {
      if (response.headersSent) response.destroy();
      else
        response
          .writeHead(502, { 'content-type': 'text/plain', connection: 'close' })
          .end('the server did not answer with valid HTTP\n');
    });
    outgoing.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, { ...endToEnd(answer.headers), connection: 'close' });
      answer.on('error', () => response.destroy());
      answer.pipe(bound.counter('received')).pipe(response);
    });
    request.pipe(bound.counter('sent')).pipe(outgoing);
    await closed(response);
    outgoing.destroy();
    upstream.destroy();
    this.log({ kind: 'http', target, outcome: 'closed', ...bound.end() });
  }

  private check(text: string, ports: readonly number[]): CheckedUrl {
    const { allow, refuseNames = [], only } = this.options;
    const checked = checkUrl(text, { ...(allow ? { allow } : {}), ports, refuseNames });
    if (
      only !== undefined &&
      !checked.allowed &&
      !only.some((pattern) => matches(bareName(checked.host), bareName(pattern)))
    ) {
      throw new SafeNetRefused(
        'not_listed',
        `${bareName(checked.host)} is not on the list of hosts for this place`,
      );
    }
    return checked;
  }

  private dial({ host, port, allowed }: CheckedUrl, gone: AbortSignal): Promise<Socket> {
    return dialChecked(
      host,
      port,
      allowed,
      this.options,
      AbortSignal.any([gone, AbortSignal.timeout(15_000)]),
    );
  }

  /** Logs a refusal or failure and gives the words of its answer. */
  private say(
    kind: EgressEntry['kind'],
    target: string,
    error: unknown,
  ): { status: number; rule: string; words: string } {
    const refused = error instanceof SafeNetRefused;
    const rule = refused ? error.rule : error instanceof SafeNetFailed ? error.kind : 'timeout';
    this.log({ kind, target: target.slice(0, 300), outcome: refused ? 'refused' : 'failed', rule });
    const known = refused || error instanceof SafeNetFailed;
    return {
      status: refused ? 403 : 502,
      rule,
      words: `${rule}: ${known ? error.publicMessage : 'no connection in time'}\n`,
    };
  }

  /** Bytes, total time and silence of one tunnel or exchange; whatever is exceeded destroys both ends. */
  private bound(ends: readonly Duplexish[]) {
    const { maxBytes = 2 * 1024 ** 3, timeoutMs = 30 * 60_000, idleMs = 60_000 } = this.options;
    const bytes = { sent: 0, received: 0 };
    const destroy = () => ends.forEach((end) => end.destroy());
    const total = setTimeout(destroy, timeoutMs);
    const idle = setTimeout(destroy, idleMs);
    for (const end of ends) end.on('error', destroy);
    return {
      counter(direction: 'sent' | 'received', already = 0) {
        bytes[direction] += already;
        return new Transform({
          transform(part: Buffer, _encoding, done) {
            bytes[direction] += part.length;
            idle.refresh();
            if (bytes.sent + bytes.received > maxBytes) destroy();
            done(null, part);
          },
        });
      },
      end() {
        clearTimeout(total);
        clearTimeout(idle);
        return bytes;
      },
    };
  }
}

type Duplexish = Pick<Duplex, 'destroy' | 'on'> | ServerResponse;

const matches = (name: string, pattern: string) =>
  pattern.startsWith('*.') ? name.endsWith(pattern.slice(1)) : name === pattern;

const closed = (end: { closed?: boolean; once(event: 'close', fn: () => void): unknown }): Promise<void> =>
  end.closed ? Promise.resolve() : new Promise((resolve) => end.once('close', () => resolve()));

/** Aborts when the client leaves, so that nobody dials for nobody. */
function goneSignal(end: { once(event: 'close', fn: () => void): unknown }): AbortSignal {
  const controller = new AbortController();
  end.once('close', () => controller.abort(new Error('the client left')));
  return controller.signal;
}

function endToEnd(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const named = String(headers.connection ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase());
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !hopByHop.includes(name) && !named.includes(name)),
  );
}
