import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

type Handler = (request: IncomingMessage, response: ServerResponse, query: URLSearchParams) => unknown;

interface DoubleContainer {
  created: number;
  extraHosts: string[];
  state?: { Running: boolean; Pid: number };
  /** Bytes that it has written. */
  size?: number;
}

/** Something that speaks an engine's API and builds nothing: for what a real one does not do on demand. */
export class EngineDouble {
  /** `DELETE` and other calls that change something, as `METHOD path`. */
  readonly calls: string[] = [];
  readonly containers = new Map<string, DoubleContainer>();
  readonly images = new Map<string, { tags: string[]; created: number }>();
  /** What `/info` says. */
  info: Record<string, unknown> = {};
  /** What a build does. */
  onBuild: Handler = (_request, response) => response.end();
  onExport: Handler = (_request, response) => response.end();
  private server: Server | null = null;

  private constructor(
    private readonly dir: string,
    readonly socket: string,
  ) {}

  static async make(): Promise<EngineDouble> {
    const dir = await mkdtemp(join(tmpdir(), 'nebo-double-'));
    return new EngineDouble(dir, join(dir, 'engine.sock'));
  }

  /** Answers from now on. */
  async up(): Promise<void> {
    this.server = createServer((request, response) => this.answer(request, response));
    this.server.listen(this.socket);
    await once(this.server, 'listening');
  }

  /** As when the daemon is killed: every connection breaks. */
  async down(): Promise<void> {
    const { server } = this;
    if (!server) return;
    this.server = null;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }

  async end(): Promise<void> {
    await this.down();
    await rm(this.dir, { recursive: true, force: true });
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url!, 'http://engine');
    const method = request.method!;
    const say = (status: number, value: unknown) => {
      request.resume();
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    };
    if (pathname === '/_ping') return void response.end('OK');
    if (pathname === '/version') return say(200, { Version: '1.2.3', Os: 'linux', Components: [] });
    if (pathname === '/info') return say(200, this.info);
    if (pathname === '/build') return void this.onBuild(request, response, searchParams);
    if (/^\/images\/.*\/get$/.test(pathname)) return void this.onExport(request, response, searchParams);
    if (pathname === '/containers/json')
      return say(
        200,
        [...this.containers].map(([Id, { created }]) => ({ Id, Created: created })),
      );
    const [, kind, id] = /^\/(containers|images)\/(.+?)(?:\/json)?$/.exec(pathname) ?? [];
    if (method === 'DELETE') {
      this.calls.push(`${method} ${pathname}`);
      if (kind === 'containers') this.containers.delete(id!);
      else this.images.delete(id!);
      return say(200, []);
    }
    const container = kind === 'containers' ? this.containers.get(id!) : undefined;
    if (container) {
      const { extraHosts, state, size = 0 } = container;
      const sizes = searchParams.get('size') === '1' ? { SizeRw: size, SizeRootFs: size } : {};
      return say(200, { HostConfig: { ExtraHosts: extraHosts }, State: state, ...sizes });
    }
    const image = kind === 'images' ? this.images.get(id!) : undefined;
    if (image) return say(200, { RepoTags: image.tags, Created: new Date(image.created).toISOString() });
    say(404, { message: 'no such thing' });
  }
}
