import { randomUUID } from 'node:crypto';
import type { KeyIdentity, ServiceIdentity, V1DNSRecord, V1DNSRecordSet, V1Zone } from '@nebo/contracts';
import { roleUrl } from '@nebo/persistence';
import { keyOf, startServices, type TestAnswer, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';
import { dns } from '../src/dns.module.js';
import { Publisher } from '../src/publisher/publisher.js';

export const nameservers = ['ns1.nebo.test.', 'ns2.nebo.test.'];

/** dns alone on a real database, with its name server on a port of its own. */
export class Bench {
  readonly account = randomUUID();
  readonly key: KeyIdentity = keyOf(this.account);
  /** Another account, with everything allowed. */
  readonly stranger: KeyIdentity = keyOf(randomUUID());

  private constructor(
    readonly nebo: TestProcess,
    readonly databaseUrl: string,
  ) {}

  static async start(env: Record<string, string> = {}): Promise<Bench> {
    const databaseUrl = await freshDatabase();
    const nebo = await startServices({
      databaseUrl,
      definitions: [dns],
      env: { NEBO_DNS_PORT: '0', NEBO_NAMESERVERS: 'ns1.nebo.test,NS2.nebo.test.', ...env },
    });
    return new Bench(nebo, databaseUrl);
  }

  close(): Promise<void> {
    return this.nebo.close();
  }

  /** Port of the name server. */
  get port(): number {
    return this.nebo.services.get('dns')!.app.get(Publisher).port!;
  }

  /** An operation of the contract, below `/v1/dns/zones`. */
  api(
    method: string,
    path: string,
    body?: unknown,
    as: KeyIdentity | null = this.key,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.nebo.request('dns', { method, path: `/v1/dns/zones${path}`, as, body, headers });
  }

  /** An operation of another service, for all accounts or for one. */
  internal(method: string, path: string, body?: unknown, account: string | null = null): Promise<TestAnswer> {
    const as: ServiceIdentity = { kind: 'service', service: 'apps-builder', account_id: account };
    return this.nebo.request('dns', { method, path: `/internal/v1/${path}`, as, body });
  }

  /** A fresh zone with a name of its own. */
  async zone(more: Record<string, unknown> = {}, as = this.key): Promise<V1Zone> {
    return made(await this.api('POST', '', { name: freshName(), ...more }, as));
  }

  async record(zone: { id: string }, body: Record<string, unknown>): Promise<V1DNSRecord> {
    return made(await this.api('POST', `/${zone.id}/dns_records`, body));
  }

  async set(zone: { id: string }, body: Record<string, unknown>): Promise<V1DNSRecordSet> {
    return made(await this.api('POST', `/${zone.id}/rrsets`, body));
  }

  /** Serial of a zone as it is stored. */
  async serial(zone: { id: string }): Promise<bigint> {
    const [row] = await this.sql<{ serial: string }>('select serial from zone where id = $1', [zone.id]);
    return BigInt(row!.serial);
  }

  /** SQL as the database's owner, past row-level security. */
  async sql<R extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    try {
      await client.query('set search_path to dns');
      return (await client.query<R>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** Connection string of the service's own role, which row-level security binds. */
  get roleUrl(): string {
    return roleUrl(this.databaseUrl, 'dns', this.nebo.runtime.masterKey.rolePassword('dns'));
  }
}

/** A domain that no other test has, absolute. */
export const freshName = (): string => `z${randomUUID().slice(0, 13)}.example.`;

function made<T>(answer: TestAnswer): T {
  if (answer.status !== 201) throw new Error(`${answer.status} ${answer.text}`);
  return answer.body as T;
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
