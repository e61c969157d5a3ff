import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { gunzipSync } from 'node:zlib';
import { extract } from 'tar-stream';

export interface Seen {
  method: string;
  path: string;
  query: Record<string, string>;
  headers: IncomingMessage['headers'];
  body: string;
}

/** An answer in place of the usual one; `break` closes the socket, `hang` never answers. */
export type Instead =
  | { status: number; headers?: Record<string, string>; body?: unknown }
  | 'break'
  | 'hang'
  /** 413 before the body was read, and the connection closed. */
  | 'refuse';

export interface FakeBuild {
  id: string;
  app_id: string;
  /** What each further read of the build shows; the last one stays. */
  stages: { status: string; deploy_state: string | null; error?: string; boot_error?: string }[];
  log: string[];
  /** Lines after which one read of the log breaks, without `done`. */
  cuts: number[];
  /** The log never ends. */
  endless?: boolean;
  sha256: string | null;
  bytes: number | null;
}

type Row = Record<string, unknown> & { id: string };

export const live = [
  { status: 'queued', deploy_state: null },
  { status: 'building', deploy_state: null },
  { status: 'success', deploy_state: 'rolling' },
  { status: 'success', deploy_state: 'live' },
];

/** A control API on node:http that behaves as the contract says: statuses, pages, SSE log with `done`, uploads. */
export class FakeApi {
  readonly key = `nebo_live_${'k'.repeat(43)}abcdef`;
  readonly account = {
    account_id: randomUUID(),
    key_id: randomUUID(),
    policy: [{ effect: 'allow', actions: ['*'], resources: ['*'] }],
    project_ids: null,
  };
  projects: Row[] = [];
  apps: (Row & { name: string; project_id: string; source_type: string })[] = [];
  env: (Row & { app_id: string; name: string })[] = [];
  builds: FakeBuild[] = [];
  /** How the next build goes. */
  nextBuild: Partial<FakeBuild> = {};
  readonly seen: Seen[] = [];
  /** The files of the last archive: path → text. */
  unpacked: Record<string, string> = {};
  private readonly instead: { method: string; path: RegExp; answers: Instead[] }[] = [];
  private server!: Server;

  static async start(): Promise<FakeApi> {
    const api = new FakeApi();
    api.server = createServer((request, response) => void api.take(request, response));
    await new Promise<void>((resolve) => api.server.listen(0, '127.0.0.1', resolve));
    return api;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/v1`;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  project(name: string): Row {
    const row = { id: randomUUID(), name, description: null, emoji: null };
    this.projects.push(row);
    return row;
  }

  app(name: string, project: Row, source = 'upload') {
    const row = {
      id: randomUUID(),
      project_id: project.id,
      name,
      status: 'inactive',
      app_type: 'frontend',
      source_type: source,
      deploy_state: null,
      replica_count: 0,
      docker_image: null,
      created_at: '2026-11-21T05:00:00Z',
    };
    this.apps.push(row);
    return row;
  }

  build(app: Row, more: Partial<FakeBuild> = {}): FakeBuild {
    const build = {
      id: randomUUID(),
      app_id: app.id,
      stages: [...live],
      log: ['installing', 'building', 'done'],
      cuts: [],
      sha256: null,
      bytes: null,
      ...more,
    };
    this.builds.unshift(build);
    return build;
  }

  /** The next answers for a method and path; then the usual ones again. */
  answer(method: string, path: RegExp, ...answers: Instead[]): void {
    this.instead.push({ method, path, answers });
  }

  /** What was received for a method and path. */
  received(method: string, path: RegExp): Seen[] {
    return this.seen.filter((one) => one.method === method && path.test(one.path));
  }

  private async take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, 'http://x');
    const chunks: Buffer[] = [];
    const method = request.method!;
    const instead = this.instead
      .find((one) => one.method === method && one.path.test(url.pathname) && one.answers.length > 0)
      ?.answers.shift();
    if (instead === 'break') return void request.socket.destroy();
    if (instead === 'refuse') {
      response.writeHead(413, { 'content-type': 'application/json', connection: 'close' });
      response.end('{"error":{"code":"archive_too_big","message":"Too big."}}', () =>
        request.socket.destroySoon(),
      );
      return;
    }
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    const body = request.headers['content-type'] === 'application/gzip' ? '' : bytes.toString();
    this.seen.push({
      method,
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: request.headers,
      body,
    });
    if (instead === 'hang') return;
    response.setHeader('x-request-id', 'req-1');
    const send = (status: number, value?: unknown, headers: Record<string, string> = {}) => {
      response.writeHead(
        status,
        value === undefined ? headers : { 'content-type': 'application/json', ...headers },
      );
      response.end(
        value === undefined ? undefined : typeof value === 'string' ? value : JSON.stringify(value),
      );
    };
    const fail = (status: number, code: string, message: string) =>
      send(status, { error: { code, message } });
    if (instead)
      return send(
        instead.status,
        instead.body ?? { error: { code: `code_${instead.status}`, message: `said ${instead.status}` } },
        instead.headers,
      );
    if (url.pathname === '/healthz') return send(200, { status: 'ok' });
    if (request.headers.authorization !== `Bearer ${this.key}`)
      return fail(401, 'unauthorized', 'The key is not valid.');
    const page = (rows: unknown[]) => {
      const limit = Number(url.searchParams.get('limit') ?? 50);
      const offset = Number(url.searchParams.get('offset') ?? 0);
      const data = rows.slice(offset, offset + limit);
      send(200, { data, limit, offset, count: data.length, total: rows.length });
    };
    const gone = () => fail(404, 'not_found', 'There is nothing here.');
    const steps = url.pathname.split('/').slice(2);
    const [kind, id, child, childId, more] = steps;
    if (kind === 'account') return id === 'balance' ? send(200, balance) : send(200, this.account);
    if (kind === 'usage') return send(200, usage);
    if (kind === 'projects' && !id) return page(this.projects);
    if (kind === 'projects' && !child) {
      const found = this.projects.find((one) => one.id === id);
      return found ? send(200, found) : gone();
    }
    if (kind === 'projects' && child === 'apps' && method === 'POST') {
      const project = this.projects.find((one) => one.id === id);
      if (!project) return gone();
      const given = JSON.parse(body) as { name: string; source_type: string };
      if (this.apps.some((one) => one.project_id === id && one.name === given.name))
        return fail(409, 'name_taken', 'The name is taken.');
      return send(201, Object.assign(this.app(given.name, project, given.source_type), given));
    }
    if (kind !== 'apps') return fail(404, 'unknown_operation', 'There is no such operation.');
    if (!id)
      return page(
        this.apps.filter(
          (one) =>
            !url.searchParams.has('project_id') || one.project_id === url.searchParams.get('project_id'),
        ),
      );
    const app = this.apps.find((one) => one.id === id);
    if (!app) return gone();
    if (!child) return method === 'PATCH' ? send(200, Object.assign(app, JSON.parse(body))) : send(200, app);
    if (child === 'domains')
      return page([
        {
          id: randomUUID(),
          app_id: id,
          domain: `x-${app.name}.apps.localhost`,
          type: 'build',
          is_default: false,
        },
        {
          id: randomUUID(),
          app_id: id,
          domain: `${app.name}.apps.localhost`,
          status: 'active',
          type: 'current',
          is_default: true,
        },
      ]);
    if (child === 'deployments' || child === 'deploy') {
      if (child === 'deployments') {
        if (app.source_type !== 'upload') return fail(409, 'wrong_source', 'Not an upload app.');
        if (request.headers['content-type'] !== 'application/gzip')
          return fail(415, 'unsupported_media_type', 'application/gzip');
        this.unpacked = await unpack(bytes);
      }
      const made = this.build(app, {
        ...this.nextBuild,
        sha256: createHash('sha256').update(bytes).digest('hex'),
        bytes: bytes.length,
      });
      return send(child === 'deploy' ? 200 : 202, { id: made.id, app_id: id, site_id: id, status: 'queued' });
    }
    if (child === 'env') return this.takeEnv(method, app, childId, body, { send, page, gone });
    const builds = this.builds.filter((one) => one.app_id === id);
    if (child === 'builds' && !childId) return page(builds.map((one) => this.recordOf(one)));
    const build = builds.find((one) => one.id === childId);
    if (!build) return gone();
    if (!more) {
      if (build.stages.length > 1) build.stages.shift();
      return send(200, this.recordOf(build));
    }
    return this.sendLog(build, response);
  }

  private takeEnv(
    method: string,
    app: Row,
    id: string | undefined,
    body: string,
    {
      send,
      page,
      gone,
    }: { send(status: number, value?: unknown): void; page(rows: unknown[]): void; gone(): void },
  ): void {
    const mine = this.env.filter((one) => one.app_id === app.id);
    if (method === 'GET') return page(mine.map(({ app_id: _app, ...shown }) => shown));
    if (method === 'DELETE') {
      if (!mine.some((one) => one.id === id)) return gone();
      this.env = this.env.filter((one) => one.id !== id);
      return send(204);
    }
    const given = JSON.parse(body) as { name: string; value: string; is_secret: boolean };
    const known = mine.find((one) => one.name === given.name);
    const row = {
      id: known?.id ?? randomUUID(),
      app_id: app.id,
      ...given,
      value: given.is_secret ? '********' : given.value,
      created_at: '2026-11-21T05:00:00Z',
    };
    this.env = [...this.env.filter((one) => one !== known), row];
    const { app_id: _app, ...shown } = row;
    return send(201, shown);
  }

  private recordOf({ id, app_id, stages, sha256, bytes }: FakeBuild) {
    const commit = { commit_sha: null, commit_message: null, docker_image: null };
    return {
      id,
      app_id,
      error: null,
      boot_error: null,
      ...commit,
      source_archive_sha256: sha256,
      source_archive_bytes: bytes,
      duration_ms: 1200,
      created_at: '2026-11-21T05:00:00Z',
      ...stages[0],
    };
  }

  private sendLog(build: FakeBuild, response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(': hello\n\n');
    const cut = build.cuts.shift();
    for (const [index, line] of build.log.entries()) {
      if (index === cut) {
        // Half a line, then the connection dies.
        response.write('data: hal');
        return void setTimeout(() => response.destroy(), 20);
      }
      response.write(`id: ${index}\ndata: ${line}\n\n`);
    }
    if (!build.endless) response.end('event: done\ndata: {}\n\n');
  }
}

const balance = {
  currency: 'RUB',
  balance: '100.00',
  credits: '50.00',
  credits_unlocked: false,
  available: '100.00',
  real_topup_min: '100',
};

const counted = {
  requests: 2,
  input_tokens: 2000,
  cached_tokens: 800,
  output_tokens: 1000,
  reasoning_tokens: 7,
};

/** A report by model and key. */
export const usage = {
  from: '2026-11-15',
  to: '2026-11-21',
  tz: 'UTC',
  by: ['model', 'key'],
  rows: [
    {
      day: null,
      model: 'glm-5.3',
      key_id: 'f3a1c1de-0000-4000-8000-000000000001',
      ...counted,
      amount: '0.3216',
    },
    {
      day: null,
      model: 'kimi-k3',
      key_id: 'f3a1c1de-0000-4000-8000-000000000001',
      ...counted,
      amount: '0.10',
    },
  ],
  totals: { ...counted, requests: 4, amount: '0.4216' },
  as_of: '2026-11-21T09:00:00Z',
};

async function unpack(bytes: Buffer): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  const reader = Readable.from([gunzipSync(bytes)]).pipe(extract());
  for await (const entry of reader) {
    const chunks: Buffer[] = [];
    for await (const chunk of entry) chunks.push(chunk as Buffer);
    files[entry.header.name] = Buffer.concat(chunks).toString();
  }
  return files;
}
