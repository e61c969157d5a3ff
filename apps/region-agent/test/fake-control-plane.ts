import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, type Socket } from 'node:net';
import {
  type BackupSpec,
  type BuildSpec,
  type LifeUsage,
  type LogBatch,
  type MachineSpec,
  type Observed,
  type RegionCapacity,
  type ReplicaSpec,
  type RunSpec,
  type UsageReport,
  type VpcSpec,
  type Wanted,
} from '@nebo/contracts';

type Spec =
  | { kind: 'build'; spec: BuildSpec }
  | { kind: 'replica'; spec: ReplicaSpec }
  | { kind: 'run'; spec: RunSpec }
  | { kind: 'vpc'; spec: VpcSpec }
  | { kind: 'vm'; spec: MachineSpec }
  | { kind: 'backup'; spec: BackupSpec };

/** Which service serves a kind. */
const serviceOf = (kind: string) => services[kind] ?? 'apps-builder';
const services: Readonly<Record<string, string>> = { vpc: 'networking', vm: 'compute', backup: 'compute' };

const body = async (request: IncomingMessage) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
};

/** The agent's interface on real HTTP, with a memory in place of a database and some faults to switch on. */
export class FakeControlPlane {
  readonly token = 'region-token';
  epoch = 0;
  /** What the last agent said that the region holds. */
  capacity: RegionCapacity | null = null;
  readonly blobs = new Map<string, Buffer>();
  readonly observed: Observed[] = [];
  /** The newest total of each life and bucket, by `life@hour`. */
  readonly usage = new Map<string, LifeUsage>();
  /** Lines by stream and number, doubles dropped as the real one does. */
  readonly logs = new Map<string, Map<number, string>>();
  readonly done = new Set<string>();
  /** Apps that have been deleted. */
  readonly goneApps = new Set<string>();
  /** Answers of the next PUTs of blobs, before any is taken. */
  readonly putAnswers: number[] = [];
  /** Every number received, doubles too. */
  readonly received = new Map<string, number[]>();
  /** Log batches that are taken but whose answer is lost. */
  loseAnswers = 0;
  /** Observations are refused, nothing else. */
  deaf = false;
  /** Connections are cut before anything is taken. */
  refuse = false;
  url = '';
  private readonly items = new Map<string, { item: Wanted; version: number }>();
  private version = 0;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private readonly waiting = new Set<() => void>();

  constructor() {
    this.server = createServer((request, response) => {
      this.answer(request, response).catch(() => response.destroy());
    });
    this.server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
  }

  async start(port = 0): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(port, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    return this;
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  /** Cuts every connection. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  put(bytes: Buffer): { sha256: string; bytes: number } {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    this.blobs.set(sha256, bytes);
    return { sha256, bytes: bytes.length };
  }

  want(id: string, generation: number, of: Spec, gone = false): void {
    this.items.set(`${of.kind}/${id}`, {
      item: { id, generation, gone, ...of } as Wanted,
      version: ++this.version,
    });
    for (const tell of this.waiting) tell();
  }

  /** As if it had never been. */
  forget(kind: Spec['kind'], id: string): void {
    this.items.delete(`${kind}/${id}`);
  }

  lines(stream: string): string[] {
    const found = [...(this.logs.get(stream) ?? new Map<number, string>())].sort(([a], [b]) => a - b);
    return found.map(([, line]) => line);
  }

  latest(id: string): Observed | undefined {
    return this.observed.filter((item) => item.id === id).at(-1);
  }

  /** Waits for an observation. */
  async see(id: string, state: string, ms = 20_000): Promise<Observed> {
    const until = Date.now() + ms;
    while (Date.now() < until) {
      const found = this.latest(id);
      if (found?.state === state) return found;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const streams = [...this.logs.keys()].map(
      (stream) => `${stream}:\n${this.lines(stream).slice(-20).join('\n')}`,
    );
    throw new Error(
      `${id} is not ${state}: ${JSON.stringify(this.observed.filter((item) => item.id === id))}\n${streams.join('\n')}`,
    );
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    const say = (status: number, value: unknown = {}) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    };
    if (this.refuse) return void request.socket.destroy();
    if (request.headers.authorization !== `Bearer ${this.token}`) return say(401);
    if (url.pathname === '/agent/v1/session') {
      const { capacity = null } = JSON.parse(String(await body(request))) as {
        capacity?: RegionCapacity | null;
      };
      this.capacity = capacity;
      return say(200, { region_id: 'region-1', epoch: ++this.epoch });
    }
    if (Number(request.headers['x-nebo-agent-epoch']) !== this.epoch) return say(409);
    const [, service, action, name = ''] = /^\/agent\/v1\/([^/]+)\/([^/]+)\/?(.*)$/.exec(url.pathname) ?? [];
    if (!service || !['apps-builder', 'networking', 'compute'].includes(service)) return say(404);
    if (action === 'wanted') return this.wanted(service, url, request, say);
    if (action === 'gone-apps') {
      const { app_ids } = JSON.parse(String(await body(request))) as { app_ids: string[] };
      return say(200, { gone: app_ids.filter((id) => this.goneApps.has(id)) });
    }
    if (action === 'observed') {
      if (this.deaf) return say(503);
      this.observed.push(...(JSON.parse(String(await body(request))) as { items: Observed[] }).items);
      return say(200);
    }
    if (action === 'usage') {
      if (this.deaf) return say(503);
      const { items } = JSON.parse(String(await body(request))) as UsageReport;
      for (const item of items) {
        const key = `${item.life}@${item.hour}`;
        if (item.seq > (this.usage.get(key)?.seq ?? 0)) this.usage.set(key, item);
      }
      return say(200, { taken: items.length, refused: [] });
    }
    if (action === 'log')
      return this.log(
        decodeURIComponent(name),
        JSON.parse(String(await body(request))) as LogBatch,
        request,
        say,
      );
    if (request.method === 'PUT') {
      const bytes = await body(request);
      const answer = this.putAnswers.shift();
      if (answer !== undefined) return say(answer);
      const { sha256 } = this.put(bytes);
      return say(sha256 === name ? 201 : 422);
    }
    const bytes = this.blobs.get(name);
    if (!bytes) return say(404);
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes);
  }

  private async wanted(
    service: string,
    url: URL,
    request: IncomingMessage,
    say: (status: number, value?: unknown) => void,
  ): Promise<void> {
    const since = url.searchParams.get('since');
    const after = since === null ? 0 : Number(since);
    const news = () =>
      [...this.items.values()].filter(
        ({ item, version }) => serviceOf(item.kind) === service && (since === null || version > after),
      );
    const wait = Number(url.searchParams.get('wait')) * 1000;
    if (since !== null && news().length === 0 && wait > 0)
      await new Promise<void>((resolve) => {
        const end = () => {
          clearTimeout(timer);
          request.socket.off('close', end);
          this.waiting.delete(end);
          resolve();
        };
        const timer = setTimeout(end, wait);
        this.waiting.add(end);
        request.socket.once('close', end);
      });
    say(200, {
      cursor: String(this.version),
      full: since === null,
      items: news().map((entry) => entry.item),
    });
  }

  private log(
    stream: string,
    batch: LogBatch,
    request: IncomingMessage,
    say: (status: number) => void,
  ): void {
    const lines = this.logs.get(stream) ?? new Map<number, string>();
    this.logs.set(stream, lines);
    const received = this.received.get(stream) ?? [];
    this.received.set(stream, received);
    for (const { seq, line } of batch.lines) {
      received.push(seq);
      if (!lines.has(seq)) lines.set(seq, line);
    }
    if (batch.done) this.done.add(stream);
    if (this.loseAnswers > 0) {
      this.loseAnswers--;
      request.socket.destroy();
    } else say(200);
  }
}
