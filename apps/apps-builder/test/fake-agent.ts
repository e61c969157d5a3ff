import { randomUUID } from 'node:crypto';
import type { AgentIdentity, Wanted as AnyWanted, Observed, WantedAnswer } from '@nebo/contracts';
import type { TestAnswer } from '@nebo/service-kit/testing';
import { archive, type Bench, eventually, region, sha256 } from './harness.js';

/** What apps-builder wants of a region. */
type Wanted = Extract<AnyWanted, { kind: 'build' } | { kind: 'replica' } | { kind: 'run' }>;

/** A region's agent as a script: keeps what is wanted, says what it is told to say. */
export class FakeAgent {
  readonly wanted = new Map<string, Wanted>();
  cursor: string | null = null;

  constructor(
    private readonly bench: Bench,
    readonly identity: AgentIdentity = { kind: 'agent', region_id: region, epoch: 1 },
  ) {}

  call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.bench.nebo.request('apps-builder', {
      method,
      path: `/agent/v1/apps-builder/${path}`,
      as: this.identity,
      body,
      headers,
    });
  }

  /** Fetches what changed. */
  async poll(wait = 0): Promise<WantedAnswer> {
    const query = new URLSearchParams({
      wait: String(wait),
      ...(this.cursor === null ? {} : { since: this.cursor }),
    });
    const answer = await this.call('GET', `wanted?${query}`);
    if (answer.status !== 200) throw new Error(answer.text);
    const { cursor, full, items } = answer.body as WantedAnswer;
    if (full) this.wanted.clear();
    for (const item of items) this.wanted.set(item.id, item as Wanted);
    this.cursor = cursor;
    return answer.body as WantedAnswer;
  }

  /** Polls until something wanted satisfies the condition. */
  until<T extends Wanted>(what: string, found: (item: Wanted) => item is T): Promise<T>;
  until(what: string, found: (item: Wanted) => boolean): Promise<Wanted>;
  until(what: string, found: (item: Wanted) => boolean): Promise<Wanted> {
    return eventually(what, async () => {
      await this.poll();
      return [...this.wanted.values()].find(found);
    });
  }

  async observe(
    item: Pick<Wanted, 'kind' | 'id' | 'generation'>,
    state: Observed['state'],
    more: Partial<Observed> = {},
  ): Promise<number> {
    const observed: Observed = {
      kind: item.kind,
      id: item.id,
      generation: item.generation,
      state,
      reason: null,
      facts: {},
      at: new Date().toISOString(),
      ...more,
    };
    const answer = await this.call('POST', 'observed', { items: [observed] });
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body.taken;
  }

  async put(bytes: Buffer): Promise<{ sha256: string; bytes: number }> {
    const hash = sha256(bytes);
    const answer = await this.call('PUT', `blob/${hash}`, bytes, {
      'content-type': 'application/octet-stream',
    });
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body;
  }

  /** Builds: takes it, stores an artifact, reports success. */
  async build(
    buildId: string,
    kind: 'static' | 'server',
    more: Record<string, unknown> = {},
  ): Promise<string> {
    const item = await this.until('the build is wanted', (wanted) => wanted.id === buildId);
    await this.observe(item, 'building');
    const artifact = await this.put(archive({ 'main.js': randomUUID() }));
    await this.call('POST', `log/${buildId}`, {
      lines: [{ seq: 0, at: new Date().toISOString(), line: 'built' }],
      done: true,
    });
    await this.observe(item, 'success', {
      facts: {
        artifact,
        artifact_kind: kind,
        start_command: kind === 'server' ? 'node main.js' : null,
        stack: kind,
        duration_ms: 1234,
        ...more,
      },
    });
    return artifact.sha256;
  }

  /** The wanted replicas of a build, once there are so many. */
  replicas(buildId: string, count: number): Promise<Wanted[]> {
    return eventually(`${count} replicas of ${buildId}`, async () => {
      await this.poll();
      const found = [...this.wanted.values()].filter(
        (item) => item.kind === 'replica' && !item.gone && item.spec.build_id === buildId,
      );
      return found.length === count && found;
    });
  }

  async ready(
    item: Pick<Wanted, 'kind' | 'id' | 'generation'>,
    port = 3000,
    at = new Date(),
  ): Promise<number> {
    const facts = {
      host: '127.0.0.1',
      port,
      started_at: at.toISOString(),
      ready_at: at.toISOString(),
      isolated: false,
    };
    return this.observe(item, 'ready', { facts, at: at.toISOString() });
  }

  /** Ready, and an edge can have it woken; then asleep if so wished. */
  async onDemand(
    item: Pick<Wanted, 'kind' | 'id' | 'generation'>,
    state: 'ready' | 'sleeping' | 'starting',
    more: { at?: Date; crashes?: number; reason?: string | null } = {},
  ): Promise<number> {
    const at = (more.at ?? new Date()).toISOString();
    const facts = { isolated: false, wakeable: true, crashes: more.crashes ?? 0, ready_at: at };
    const address = state === 'ready' ? { host: '127.0.0.1', port: 3000, started_at: at } : {};
    return this.observe(item, state, { facts: { ...facts, ...address }, at, reason: more.reason ?? null });
  }

  /** Removes all that shall go, once there is something. @returns ids */
  async removeGone(): Promise<string[]> {
    await this.poll();
    const gone = [...this.wanted.values()].filter((item) => item.kind === 'replica' && item.gone);
    for (const item of gone) {
      await this.observe(item, 'gone');
      this.wanted.delete(item.id);
    }
    return gone.map(({ id }) => id);
  }
}

/** An edge as a script: applies all routes that it is given. */
export class FakeEdge {
  version: string | null = null;
  readonly routes = new Map<
    string,
    {
      build_id: string | null;
      app_id: string;
      target: {
        kind: string;
        reason?: string;
        replicas?: { id: string; port: number }[];
        wake?: { id: string };
      };
    }
  >();
  private timer: NodeJS.Timeout | undefined;
  private busy: Promise<unknown> = Promise.resolve();

  /** @param id its name; null: it has none, as when somebody confirms by hand */
  constructor(
    private readonly bench: Bench,
    private readonly id: string | null = null,
  ) {}

  /** Fetches what changed, without confirming it. */
  async fetch(): Promise<{ full: boolean; removed: string[] }> {
    const query = new URLSearchParams({
      ...(this.version === null ? {} : { since: this.version }),
      ...(this.id === null ? {} : { edge: this.id }),
    });
    const { body } = await this.bench.internal('GET', `routes?${query}`);
    if (body.full) this.routes.clear();
    for (const route of body.routes) this.routes.set(route.host, route);
    for (const host of body.removed) this.routes.delete(host);
    this.version = body.version;
    return body;
  }

  async confirm(): Promise<void> {
    const routes = [...this.routes].map(([host, { build_id }]) => ({ host, build_id }));
    await this.bench.internal('POST', 'routes/applied', {
      version: this.version,
      routes,
      ...(this.id === null ? {} : { edge: this.id }),
    });
  }

  /** Says goodbye. */
  async leave(): Promise<void> {
    await this.stop();
    await this.bench.internal('DELETE', `edges/${this.id}`);
  }

  /** Applies and confirms every 30 ms until stopped. */
  run(): void {
    const step = async () => {
      await this.fetch();
      await this.confirm();
    };
    this.timer = setInterval(() => (this.busy = this.busy.then(step).catch(() => undefined)), 30);
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.busy;
  }

  /** The route of an app's first host. */
  of(appId: string) {
    return [...this.routes.values()].find((route) => route.app_id === appId);
  }
}
