import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type {
  AccountStanding,
  AgentIdentity,
  KeyIdentity,
  Observed,
  RegionInfo,
  ServiceIdentity,
  V1FloatingIP,
  V1Vpc,
  Wanted,
  WantedAnswer,
} from '@nebo/contracts';
import { roleUrl } from '@nebo/persistence';
import type { ServiceTarget, TargetAnswer, TargetCall } from '@nebo/service-kit';
import { keyOf, startServices, type TestAnswer, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';
import { networking } from '../src/networking.module.js';

export const region = '0a0a0a0a-0000-4000-8000-000000000001';
export const otherRegion = '0a0a0a0a-0000-4000-8000-000000000002';
const regions: RegionInfo[] = [
  { id: region, name: 'local', is_default: true },
  { id: otherRegion, name: 'far', is_default: false },
];

type Answer = { status: number; body: unknown };
const absent: Answer = { status: 404, body: { error: { code: 'not_found', message: 'no' } } };

/** A service that is not under test: answers what it is told. */
class StubTarget implements ServiceTarget {
  constructor(private readonly answer: (path: string, body: Record<string, string>) => Answer | undefined) {}

  forward(): void {
    throw new Error('nothing is forwarded to a stub');
  }

  async call({ path, body }: TargetCall): Promise<TargetAnswer> {
    const sent = (typeof body === 'string' ? JSON.parse(body) : {}) as Record<string, string>;
    const { status, body: answered } = this.answer(path, sent) ?? absent;
    return { status, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(answered))]) };
  }

  async close(): Promise<void> {}
}

/** Money as the tests want it. Amounts are 10⁻⁹ rubles. */
export class StubBilling {
  available = 10n ** 15n;
  away = false;
  /** Only spans cannot be opened: holds go on standing. */
  noSpans = false;
  price = '180000000000';
  /** Accounts that are not in order. */
  standing: AccountStanding[] = [];
  /** Holds that stand, by operation id. */
  readonly held = new Map<string, bigint>();
  readonly spans = new Map<string, { open: Record<string, string>; closed: string | null }>();
  readonly target = new StubTarget((path, body) => {
    if (this.away || (this.noSpans && path.endsWith('/span-open')))
      return { status: 500, body: { error: { code: 'internal_error', message: 'away' } } };
    if (path === '/internal/v1/standing') return { status: 200, body: this.standing };
    if (path.startsWith('/internal/v1/prices'))
      return {
        status: 200,
        body: [{ id: 'floating_ip.month', version: 3, amount: this.price, unit: 'month' }],
      };
    const id = body['operation_id']!;
    if (path.endsWith('/reserve')) {
      const amount = BigInt(body['amount']!);
      const free = this.available - [...this.held.values()].reduce((sum, one) => sum + one, 0n);
      if (amount > free)
        return { status: 402, body: { error: { code: 'insufficient_balance', message: 'not enough' } } };
      this.held.set(id, amount);
    } else if (path.endsWith('/void')) this.held.delete(id);
    else if (path.endsWith('/span-open')) this.spans.set(id, { open: body, closed: null });
    else if (path.endsWith('/span-close')) this.spans.get(id)!.closed = body['ended_at']!;
    else return undefined;
    return { status: 200, body: {} };
  });

  /** The span of a resource. */
  spanOf(resource: string) {
    return [...this.spans.values()].find(({ open }) => open['resource'] === resource);
  }
}

/** networking alone on a real database. */
export class Bench {
  readonly account = randomUUID();
  readonly key: KeyIdentity = keyOf(this.account);
  /** Another account, with everything allowed. */
  readonly stranger: KeyIdentity = keyOf(randomUUID());
  readonly billing = new StubBilling();

  private constructor(
    readonly nebo: TestProcess,
    readonly databaseUrl: string,
  ) {}

  static async start(env: Record<string, string> = {}): Promise<Bench> {
    const databaseUrl = await freshDatabase();
    const nebo = await startServices({ databaseUrl, definitions: [networking], env });
    const bench = new Bench(nebo, databaseUrl);
    nebo.runtime.targets.set(
      'compute',
      new StubTarget((path) =>
        path === '/internal/v1/regions' ? { status: 200, body: regions } : undefined,
      ),
    );
    nebo.runtime.targets.set('identity-billing', bench.billing.target);
    return bench;
  }

  close(): Promise<void> {
    return this.nebo.close();
  }

  /** An operation of the contract. */
  api(
    method: string,
    path: string,
    body?: unknown,
    as: KeyIdentity | null = this.key,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.nebo.request('networking', { method, path: `/v1/${path}`, as, body, headers });
  }

  /** An operation of another service, for all accounts or for one. */
  internal(method: string, path: string, body?: unknown, account: string | null = null): Promise<TestAnswer> {
    const as: ServiceIdentity = { kind: 'service', service: 'compute', account_id: account };
    return this.nebo.request('networking', { method, path: `/internal/v1/${path}`, as, body });
  }

  /** A fresh VPC in a range of its own. */
  async vpc(more: Record<string, unknown> = {}, as = this.key): Promise<V1Vpc> {
    this.ranges += 1;
    const answer = await this.api(
      'POST',
      'vpcs',
      {
        name: `vpc ${randomUUID()}`,
        subnet: `10.${64 + (this.ranges >> 8)}.${this.ranges & 255}.0/24`,
        cluster_id: region,
        ...more,
      },
      as,
    );
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body;
  }
  private ranges = 0;

  /** Claims a port for the bench's account. */
  claim(more: Record<string, unknown>): Promise<TestAnswer> {
    return this.internal('POST', 'ports/claim', {
      operation_id: randomUUID(),
      account_id: this.account,
      kind: 'vm_interface',
      owner: `vm:${randomUUID()}`,
      vpc_id: null,
      ...more,
    });
  }

  /** A fresh VPC that its region has made. */
  async activeVpc(agent: FakeAgent, more: Record<string, unknown> = {}, as = this.key): Promise<V1Vpc> {
    const { id } = await this.vpc(more, as);
    await agent.answer(id, 'active');
    return (await this.api('GET', `vpcs/${id}?wait=active&timeout=20`, undefined, as)).body;
  }

  /** Orders a floating IP for the bench's account. */
  async address(more: Record<string, unknown> = {}, as = this.key): Promise<V1FloatingIP> {
    const answer = await this.api('POST', 'floating-ips', { cluster_id: region, ...more }, as);
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body;
  }

  /** Actions of the account's audit log and events, in their order: what was said since the start. */
  async said(resource: string): Promise<string[]> {
    const rows = await this.sql<{ envelope: { type: string; data: Record<string, unknown> } }>(
      `select envelope from outbox where envelope::text like '%' || $1 || '%' order by seq`,
      [resource],
    );
    return rows.map(({ envelope: { type, data } }) =>
      type.includes('.audit.') ? `${String(data['actor']).split(':')[0]} ${String(data['action'])}` : type,
    );
  }

  /** SQL as the database's owner, past row-level security. */
  async sql<R extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    try {
      await client.query('set search_path to networking');
      return (await client.query<R>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** Connection string of the service's own role, which row-level security binds. */
  get roleUrl(): string {
    return roleUrl(this.databaseUrl, 'networking', this.nebo.runtime.masterKey.rolePassword('networking'));
  }
}

type WantedVpc = Extract<Wanted, { kind: 'vpc' }>;

/** A region's agent as a script: keeps what is wanted, says what it is told to say. */
export class FakeAgent {
  readonly wanted = new Map<string, WantedVpc>();
  cursor: string | null = null;

  constructor(
    private readonly bench: Bench,
    readonly identity: AgentIdentity = { kind: 'agent', region_id: region, epoch: 1 },
  ) {}

  call(method: string, path: string, body?: unknown): Promise<TestAnswer> {
    return this.bench.nebo.request('networking', {
      method,
      path: `/agent/v1/networking/${path}`,
      as: this.identity,
      body,
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
    for (const item of items) this.wanted.set(item.id, item as WantedVpc);
    this.cursor = cursor;
    return answer.body as WantedAnswer;
  }

  async observe(
    item: { id: string; generation: number },
    state: string,
    more: Partial<Observed> = {},
  ): Promise<number> {
    const observed = {
      kind: 'vpc',
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

  /**
   * Fetches one VPC as it is wanted now and says what became of it.
   * @param faults floating IPs that do not work, with the reason; all others do
   */
  async answer(
    id: string,
    state: string,
    reason: string | null = null,
    faults: Record<string, string> = {},
  ): Promise<WantedVpc> {
    const item = await eventually(`${id} is wanted as it is now`, async () => {
      await this.poll();
      const known = this.wanted.get(id);
      const rows = await this.bench.sql<{ generation: number }>('select generation from vpc where id = $1', [
        id,
      ]);
      // A row that was locked is in the next answer.
      return known?.generation === rows[0]?.generation && known;
    });
    const { ports, floating_ips, nat } = item.spec;
    const all = [...floating_ips.map((fip) => fip.id), ...(nat ? [nat.id] : [])];
    const working = all.filter((fip) => !(fip in faults));
    const facts = { driver: 'fake', real: false, ports: ports.length, floating_ips: working, faults };
    await this.observe(item, state, { reason, ...(state === 'active' ? { facts } : {}) });
    return item;
  }

  /** Makes all so that is wanted, until it is told to stop. @returns what stops it */
  obey(): () => Promise<void> {
    let over = false;
    const work = (async () => {
      while (!over) {
        for (const { id, gone } of (await this.poll()).items) await this.answer(id, gone ? 'gone' : 'active');
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    })();
    return () => {
      over = true;
      return work;
    };
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
