import {
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { chmod, rm } from 'node:fs/promises';
import { type AddressInfo, type ListenOptions, type Socket } from 'node:net';
import { type Duplex, type Readable } from 'node:stream';
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
  /** Connections at the same time through one address; further ones are closed. Default 256. */
  maxConnections?: number;
  log?: (entry: EgressEntry) => void;
}

/** A running proxy. */
export interface EgressProxy {
  /** For `HTTP_PROXY` and `HTTPS_PROXY`; null on a unix socket. */
  readonly url: string | null;
  /**
   * Has it listen at a further address of this host, on any port: for somebody who can reach nothing else.
   * @throws what listening throws (EADDRNOTAVAIL …)
   */
  door(address: string): Promise<EgressDoor>;
  /** Closes the doors too. */
  stop(): Promise<void>;
}

/** A further address at which a proxy listens. */
export interface EgressDoor {
  /** `http://address:port`. */
  readonly url: string;
  /** Ends what has come in here. */
  close(): Promise<void>;
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
  const exchange = new Exchange(options, options.log ?? (() => undefined));
  const listen = options.listen ?? {};
  const path = 'path' in listen ? listen.path : null;
  if (path !== null) await rm(path, { force: true });
  const main = new Door(exchange, options);
  await main.listen(
    'path' in listen ? { path: listen.path } : { port: listen.port ?? 0, host: listen.host ?? '127.0.0.1' },
  );
  if (path !== null) await chmod(path, 0o666);
  const doors = new Set<Door>();
  return {
    url: main.url,
    async door(address) {
      const door = new Door(exchange, options);
      await door.listen({ port: 0, host: address });
      doors.add(door);
      return {
        url: door.url!,
        close: () => {
          doors.delete(door);
          return door.close();
        },
      };
    },
    async stop() {
      await Promise.all([main, ...doors].map((door) => door.close()));
    },
  };
}

/** One address at which the proxy listens, with what has come in there. */
class Door {
  private readonly open = new Set<Duplex>();
  private readonly server: Server;

  constructor(exchange: Exchange, { maxConnections = 256 }: EgressOptions) {
    this.server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 0 }, (request, response) => {
      exchange.forward(request, response).catch(() => response.destroy());
    });
    this.server.maxConnections = maxConnections;
    this.server.on('connection', (socket: Socket) => {
      this.open.add(socket);
      socket.on('close', () => this.open.delete(socket));
      socket.on('error', () => undefined);
    });
    this.server.on('connect', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      exchange.connect(request, socket, head).catch(() => socket.destroy());
    });
  }

  listen(at: ListenOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(at, resolve);
    });
  }

  /** Null on a unix socket. */
  get url(): string | null {
    const at = this.server.address() as AddressInfo | string;
    if (typeof at === 'string') return null;
    return `http://${at.address.includes(':') ? `[${at.address}]` : at.address}:${at.port}`;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    for (const socket of this.open) socket.destroy();
    await closed;
  }
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
    bound.count('sent', socket, head.length);
    bound.count('received', upstream);
    socket.pipe(upstream);
    upstream.pipe(socket);
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
    const coding = request.headers['transfer-encoding'];
    const outgoing = httpRequest({
      method: request.method,
      path: url.pathname + url.search,
      headers: {
        ...endToEnd(request.headers),
        host: url.host,
        connection: 'close',
        // Node frames a body without a length by itself for some methods only; behind others it would be another request.
        ...(coding === undefined ? {} : { 'transfer-encoding': coding }),
      },
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
      bound.count('received', answer);
      answer.pipe(response);
    });
    bound.count('sent', request);
    request.pipe(outgoing);
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
      /** Beside the pipe, not within it: a stage of its own costs more than the bytes themselves. */
      count(direction: 'sent' | 'received', from: Readable, already = 0) {
        bytes[direction] += already;
        from.on('data', (part: Buffer) => {
          bytes[direction] += part.length;
          idle.refresh();
          if (bytes.sent + bytes.received > maxBytes) destroy();
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
