import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import http, {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { type Route, type RoutesAnswer, type RouteTarget } from '@nebo/contracts';
import { pack } from 'tar-stream';
import { createEdge, type Edge, type EdgeOptions, type RouteSource } from '../src/index.js';

/** Things to undo after a test, last first. */
export class Cleanup {
  private readonly tasks: (() => unknown)[] = [];

  add(task: () => unknown): void {
    this.tasks.push(task);
  }

  async run(): Promise<void> {
    while (this.tasks.length > 0) await this.tasks.pop()!();
  }

  async folder(): Promise<string> {
    const path = await mkdtemp(join(tmpdir(), 'nebo-edge-'));
    this.add(() => rm(path, { recursive: true, force: true }));
    return path;
  }
}

export interface Artifact {
  sha256: string;
  bytes: number;
  body: Buffer;
}

/** A gzip tar of files; a value that starts with `->` is a symbolic link. */
export async function artifact(files: Record<string, string | Buffer>): Promise<Artifact> {
  const tar = pack();
  for (const [name, content] of Object.entries(files)) {
    if (typeof content === 'string' && content.startsWith('->')) {
      tar.entry({ name, type: 'symlink', linkname: content.slice(2) });
    } else {
      tar.entry({ name, mode: 0o644 }, content);
    }
  }
  tar.finalize();
  const body = gzipSync(await buffer(tar));
  return { sha256: createHash('sha256').update(body).digest('hex'), bytes: body.length, body };
}

export const staticTarget = (of: Artifact): RouteTarget => ({
  kind: 'static',
  artifact_sha256: of.sha256,
  artifact_bytes: of.bytes,
});

/** A control plane in memory: versions, deltas, long polls, faults by switch. */
export class ControlPlane implements RouteSource {
  down = false;
  /** Every answer is everything, at once: a source without deltas. */
  plain = false;
  fetches: { since: string | null; waitMs: number }[] = [];
  confirmed: { version: string; routes: Route[] }[] = [];
  failConfirm = 0;
  /** The edges that asked, that confirmed, and that said goodbye, in their order. */
  readonly edges = { asked: [] as string[], confirmed: [] as string[], left: [] as string[] };
  /** Downloads wait for this. */
  gate: Promise<void> = Promise.resolve();
  downloads: string[] = [];
  private version = 0;
  private routes = new Map<string, { route: Route; at: number }>();
  private removals = new Map<string, number>();
  private blobs = new Map<string, Buffer>();
  private waiters = new Set<() => void>();

  keep(...artifacts: Artifact[]): void {
    for (const one of artifacts) this.blobs.set(one.sha256, one.body);
  }

  keepAs(sha256: string, body: Buffer): void {
    this.blobs.set(sha256, body);
  }

  forget(sha256: string): void {
    this.blobs.delete(sha256);
  }

  route(host: string, target: RouteTarget, more: Partial<Route> = {}): Route {
    const route: Route = {
      host,
      app_id: `app-${host}`,
      account_id: 'acc',
      build_id: randomUUID(),
      target,
      ...more,
    };
    this.routes.set(host, { route, at: ++this.version });
    this.removals.delete(host);
    this.wake();
    return route;
  }

  remove(host: string): void {
    this.routes.delete(host);
    this.removals.set(host, ++this.version);
    this.wake();
  }

  get current(): string {
    return String(this.version);
  }

  async fetchRoutes(
    since: string | null,
    signal: AbortSignal,
    waitMs: number,
    edge: string,
  ): Promise<RoutesAnswer> {
    this.fetches.push({ since, waitMs });
    this.edges.asked.push(edge);
    if (this.down) throw new Error('control plane is down');
    if (since === this.current && waitMs > 0 && !this.plain) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          clearTimeout(timer);
          this.waiters.delete(done);
          resolve();
        };
        const timer = setTimeout(done, waitMs);
        this.waiters.add(done);
        signal.addEventListener('abort', done, { once: true });
      });
      if (this.down) throw new Error('control plane is down');
    }
    const all = [...this.routes.values()];
    if (since === null || this.plain) {
      return { version: this.current, full: true, routes: all.map(({ route }) => route), removed: [] };
    }
    const after = Number(since);
    return {
      version: this.current,
      full: false,
      routes: all.filter(({ at }) => at > after).map(({ route }) => route),
      removed: [...this.removals].filter(([, at]) => at > after).map(([host]) => host),
    };
  }

  async fetchArtifact(sha256: string): Promise<Readable> {
    this.downloads.push(sha256);
    await this.gate;
    const body = this.blobs.get(sha256);
    if (this.down || !body) throw new Error('no such blob');
    return Readable.from([body]);
  }

  confirm(version: string, routes: Route[], _signal: AbortSignal, edge: string): Promise<void> {
    if (this.failConfirm > 0) {
      this.failConfirm--;
      return Promise.reject(new Error('control plane is down'));
    }
    this.confirmed.push({ version, routes });
    this.edges.confirmed.push(edge);
    return Promise.resolve();
  }

  leave(edge: string): Promise<void> {
    this.edges.left.push(edge);
    return this.down ? new Promise(() => undefined) : Promise.resolve();
  }

  private wake(): void {
    for (const waiter of [...this.waiters]) waiter();
  }
}

export interface Running {
  edge: Edge;
  port: number;
  tlsPort: number;
  home: string;
}

export async function startEdge(
  cleanup: Cleanup,
  source: RouteSource,
  more: Partial<EdgeOptions> = {},
): Promise<Running> {
  const home = more.home ?? (await cleanup.folder());
  const edge = createEdge({
    source,
    port: 0,
    tlsPort: 0,
    host: '127.0.0.1',
    ...more,
    home,
    tuning: { stopGraceMs: 500, idlePauseMs: 50, ...more.tuning },
  });
  const ports = await edge.start();
  cleanup.add(() => edge.stop());
  return { edge, ...ports, home };
}

/** Starts a server on a free port of 127.0.0.1. */
export async function backend(
  cleanup: Cleanup,
  handler: RequestListener,
): Promise<{ server: Server; port: number }> {
  const server = http.createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.add(() => {
    server.closeAllConnections();
    server.close();
  });
  return { server, port: (server.address() as AddressInfo).port };
}

export const replicas = (...ports: number[]): RouteTarget => ({
  kind: 'replicas',
  replicas: ports.map((port, i) => ({ id: `r${i}`, host: '127.0.0.1', port })),
});

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  text: string;
}

export interface AskOptions {
  host?: string;
  method?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
  agent?: http.Agent;
}

/** One request over a real socket. */
export async function ask(port: number, path: string, options: AskOptions = {}): Promise<Answer> {
  const answer = await open(port, path, options);
  const body = await buffer(answer);
  return { status: answer.statusCode ?? 0, headers: answer.headers, body, text: body.toString() };
}

/** The answer as soon as its head is there. */
export function open(port: number, path: string, options: AskOptions = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: '127.0.0.1',
      port,
      path,
      method: options.method ?? 'GET',
      headers: { host: options.host ?? 'shop.apps.localhost', ...options.headers },
      agent: options.agent ?? false,
    });
    request.once('response', resolve);
    request.once('error', reject);
    request.end(options.body);
  });
}

/** Sends bytes as they are and returns all that comes back, until the server closes or falls silent for `quietMs`. */
export function raw(port: number, text: string | Buffer, quietMs = 250): Promise<string> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1');
    const parts: Buffer[] = [];
    const end = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(parts).toString('latin1'));
    };
    let timer = setTimeout(end, 5_000);
    socket.on('data', (chunk) => {
      parts.push(chunk);
      clearTimeout(timer);
      timer = setTimeout(end, quietMs);
    });
    socket.on('error', () => undefined);
    socket.on('close', end);
    socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text);
  });
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean | Promise<boolean>, ms = 8_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** An edge that serves one host from replicas. */
export async function serving(
  cleanup: Cleanup,
  target: RouteTarget,
  more: Partial<EdgeOptions> = {},
): Promise<Running & { plane: ControlPlane }> {
  const plane = new ControlPlane();
  plane.route('shop.apps.localhost', target);
  const run = await startEdge(cleanup, plane, more);
  await until(() => run.edge.status().ready);
  return { ...run, plane };
}

/** A TCP server that does with each connection what it is told. */
export async function tcp(cleanup: Cleanup, onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.add(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A port that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
