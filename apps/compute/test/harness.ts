import { createHash, generateKeyPairSync, randomBytes, randomUUID } from 'node:crypto';
import type {
  AgentIdentity,
  BackupState,
  BlobRef,
  KeyIdentity,
  MachineState,
  ServiceIdentity,
  Wanted,
  WantedAnswer,
} from '@nebo/contracts';
import { keyOf, startServices, type TestAnswer, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';
import { compute } from '../src/compute.module.js';
import { StubBilling, StubNetworking } from './stubs.js';

export const gateway: ServiceIdentity = { kind: 'service', service: 'api-gateway', account_id: null };

/** A fresh public key in OpenSSH form. */
export function publicKey(comment = 'me@here'): string {
  const { publicKey: key } = generateKeyPairSync('ed25519');
  const raw = key.export({ format: 'der', type: 'spki' }).subarray(-32);
  const field = (bytes: Buffer) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  };
  const wire = Buffer.concat([field(Buffer.from('ssh-ed25519')), field(raw)]);
  return `ssh-ed25519 ${wire.toString('base64')} ${comment}`;
}

/** compute alone on a real database, with its neighbours stubbed. */
export class Bench {
  readonly account = randomUUID();
  readonly project = randomUUID();
  readonly key: KeyIdentity = keyOf(this.account);
  /** Another account, with everything allowed. */
  readonly stranger: KeyIdentity = keyOf(randomUUID());
  readonly billing = new StubBilling();
  readonly networking = new StubNetworking();
  region = '';
  image = '';
  plans: Record<string, string> = {};

  private constructor(
    public nebo: TestProcess,
    readonly databaseUrl: string,
  ) {}

  static async start(env: Record<string, string> = {}): Promise<Bench> {
    const databaseUrl = await freshDatabase();
    const bench = new Bench(await startServices({ databaseUrl, definitions: [compute], env }), databaseUrl);
    bench.connect();
    bench.region = (await bench.internal('GET', 'regions')).body[0].id;
    bench.image = (await bench.internal('GET', 'operator/images')).body[0].id;
    for (const { id, name } of (await bench.internal('GET', 'operator/plans')).body) bench.plans[name] = id;
    return bench;
  }

  private connect(): void {
    this.nebo.runtime.targets.set('identity-billing', this.billing.target);
    this.nebo.runtime.targets.set('networking', this.networking.target);
  }

  close(): Promise<void> {
    return this.nebo.close();
  }

  /** Stops the process and starts another one on the same database. */
  async reopen(): Promise<void> {
    await this.nebo.close();
    this.nebo = await startServices({ databaseUrl: this.databaseUrl, definitions: [compute] });
    this.connect();
  }

  /** An operation of the contract. */
  api(
    method: string,
    path: string,
    body?: unknown,
    as: KeyIdentity | null = this.key,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.nebo.request('compute', { method, path: `/v1/${path}`, as, body, headers });
  }

  internal(method: string, path: string, body?: unknown): Promise<TestAnswer> {
    return this.nebo.request('compute', { method, path: `/internal/v1/${path}`, as: gateway, body });
  }

  /** A body that is accepted. */
  order(more: Record<string, unknown> = {}): Record<string, unknown> {
    return {
      name: `vm ${randomUUID()}`,
      hostname: 'web',
      image_id: this.image,
      vm_plan_id: this.plans['nano'],
      cluster_id: this.region,
      default_user: 'me',
      ...more,
    };
  }

  create(more: Record<string, unknown> = {}, headers: Record<string, string> = {}): Promise<TestAnswer> {
    return this.api('POST', `projects/${this.project}/vms`, this.order(more), this.key, headers);
  }

  /** A machine that was ordered. @returns its record */
  async vm(more: Record<string, unknown> = {}): Promise<TestAnswer['body']> {
    const answer = await this.create(more);
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body;
  }

  /** The machine's record once it has a status. */
  async reach(id: string, status: string): Promise<TestAnswer['body']> {
    const seen = await eventually(`${id} ${status}`, async () => {
      const { body } = await this.api('GET', `vms/${id}`);
      return body.status === status && body;
    });
    return seen;
  }

  /** SQL as the database's owner, past row-level security. */
  async sql<R extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    try {
      await client.query('set search_path to compute');
      return (await client.query<R>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** Locks rows as the database's owner until they are released. */
  async hold(text: string, values: unknown[]): Promise<Hold> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    await client.query('set search_path to compute');
    await client.query('begin');
    await client.query(text, values);
    return {
      query: async (sql, params) => void (await client.query(sql, params)),
      waiters: async (count) => {
        await eventually(`${count} that wait`, async () => {
          const [row] = await this.sql<{ count: number }>(
            "select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
          );
          return row!.count >= count;
        });
      },
      release: async () => {
        await client.query('commit');
        await client.end();
      },
    };
  }

  /** Everything that is left of a machine: rows, ports, money that was not paid back. */
  async remains(id: string): Promise<{ rows: number; ports: number; charged: bigint }> {
    const [row] = await this.sql<{ count: number }>(
      `select (select count(*) from vm where id = $1)::int + (select count(*) from vm_interface where vm_id = $1)::int
         + (select count(*) from lifecycle where id = $1 and ended_at is null)::int as count`,
      [id],
    );
    const ports = [...this.networking.ports.values()].filter(({ owner }) => owner === `vm:${id}`).length;
    return { rows: row!.count, ports, charged: this.billing.charged(id) };
  }
}

/** A transaction that holds rows. */
export interface Hold {
  /** In that transaction. */
  query(sql: string, params: unknown[]): Promise<void>;
  /** Until so many sessions wait for a lock. */
  waiters(count: number): Promise<void>;
  release(): Promise<void>;
}

/** A region's agent in a test's hands: says what it is told to. */
export class FakeAgent {
  readonly wanted = new Map<string, Wanted & { kind: 'vm' }>();
  readonly backups = new Map<string, Wanted & { kind: 'backup' }>();
  cursor: string | null = null;
  private clock = Date.now();

  constructor(
    private readonly bench: Bench,
    readonly identity: AgentIdentity = { kind: 'agent', region_id: bench.region, epoch: 1 },
  ) {}

  call(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.bench.nebo.request('compute', {
      method,
      path: `/agent/v1/compute/${path}`,
      as: this.identity,
      body,
      headers,
    });
  }

  async poll(wait = 0): Promise<WantedAnswer> {
    const since = this.cursor === null ? '' : `&since=${this.cursor}`;
    const { status, body, text } = await this.call('GET', `wanted?wait=${wait}${since}`);
    if (status !== 200) throw new Error(text);
    const answer = body as WantedAnswer;
    this.cursor = answer.cursor;
    for (const item of answer.items) {
      if (item.kind === 'backup') this.backups.set(item.id, item);
      else this.wanted.set(item.id, item as Wanted & { kind: 'vm' });
    }
    return answer;
  }

  /** The newest word on a machine, once its generation is at least that. */
  see(id: string, generation = 1): Promise<Wanted & { kind: 'vm' }> {
    return eventually(`${id} wanted`, async () => {
      await this.poll();
      const item = this.wanted.get(id);
      return item && item.generation >= generation && item;
    });
  }

  /** @returns how many observations were taken */
  async observe(
    item: { id: string; generation: number; spec?: { boot: number } },
    state: MachineState,
    more: { reason?: string; facts?: object; at?: string } = {},
  ): Promise<number> {
    this.clock = Math.max(this.clock + 1, Date.now());
    const { reason = null, facts = {}, at = new Date(this.clock).toISOString() } = more;
    const boot = item.spec?.boot ?? 1;
    const said = { driver: 'fake', real: false, boot, started_at: null, guest_agent: null, ...facts };
    const answer = await this.call('POST', 'observed', {
      items: [{ kind: 'vm', id: item.id, generation: item.generation, state, reason, facts: said, at }],
    });
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body.taken;
  }

  /** The newest word on a backup, once its generation is at least that. */
  seeBackup(id: string, generation = 1): Promise<Wanted & { kind: 'backup' }> {
    return eventually(`${id} wanted`, async () => {
      await this.poll();
      const item = this.backups.get(id);
      return item && item.generation >= generation && item;
    });
  }

  /** @returns how many observations were taken */
  async observeBackup(
    item: { id: string; generation: number },
    state: BackupState,
    more: { reason?: string; facts?: object } = {},
  ): Promise<number> {
    const { reason = null, facts = {} } = more;
    const { id, generation } = item;
    const at = new Date().toISOString();
    const answer = await this.call('POST', 'observed', {
      items: [{ kind: 'backup', id, generation, state, reason, facts, at }],
    });
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body.taken;
  }

  /** Stores bytes as the region's. @returns the blob */
  async put(bytes: Buffer): Promise<BlobRef> {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const headers = { 'content-type': 'application/octet-stream' };
    const answer = await this.call('PUT', `blob/${sha256}`, bytes, headers);
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body;
  }

  /** Makes a backup as its region would. */
  async back(id: string, bytes: Buffer = randomBytes(64), consistency = 'crash'): Promise<BlobRef> {
    const item = await this.seeBackup(id);
    const blob = await this.put(bytes);
    await this.observeBackup(item, 'ready', { facts: { driver: 'fake', real: false, blob, consistency } });
    return blob;
  }

  /** Takes a machine to `running` as its region would. */
  async run(id: string): Promise<TestAnswer['body']> {
    await this.observe(await this.see(id), 'running');
    return this.bench.reach(id, 'active');
  }
}

/** Asks until the answer is truthy. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | null | undefined | false>,
  ms = 15_000,
): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
