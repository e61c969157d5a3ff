import { createHash, randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import {
  type AccountStanding,
  type ComputeUsageRequest,
  identityHeader,
  type KeyIdentity,
  type RegionInfo,
  type ServiceIdentity,
} from '@nebo/contracts';
import { roleUrl } from '@nebo/persistence';
import { keyOf, startServices, type TestAnswer, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';
import { appsBuilder } from '../src/apps-builder.module.js';
import { StubNetworking } from './stub-networking.js';
import { StubTarget } from './stub-target.js';

export { StubTarget };

export const region = '0a0a0a0a-0000-4000-8000-000000000001';
export const otherRegion = '0a0a0a0a-0000-4000-8000-000000000002';
export const gateway: ServiceIdentity = { kind: 'service', service: 'edge', account_id: null };

/** Money as the tests want it. */
export class StubBilling {
  available = 10n ** 15n;
  away = false;
  /** What a project's owner is answered with. */
  project: { status: number; body: unknown } = { status: 200, body: {} };
  /** Accounts that are not in order. */
  standing: AccountStanding[] = [];
  /** Parts of hours that were charged, by operation id; how often each came; answers that are still to be lost. */
  readonly usage = new Map<string, ComputeUsageRequest>();
  readonly usageCalls: string[] = [];
  loseUsage = 0;
  readonly spans = new Map<string, { open: Record<string, unknown>; closed: string | null }>();
  readonly target = new StubTarget((path, body: Record<string, string>) => {
    // Away is the money; without keys and projects no request comes here at all.
    if (path.startsWith('/internal/v1/owners/project/')) return this.project;
    if (this.away) return { status: 500, body: { error: { code: 'internal_error', message: 'away' } } };
    if (path === '/internal/v1/standing') return { status: 200, body: this.standing };
    if (path.startsWith('/internal/v1/prices')) {
      return {
        status: 200,
        body: [
          { id: 'replica.vcpu.month', version: 3, amount: '450000000000', unit: 'month' },
          { id: 'replica.memory_gb.month', version: 4, amount: '220000000000', unit: 'month' },
        ],
      };
    }
    if (path.endsWith('/compute-usage')) {
      const part = body as unknown as ComputeUsageRequest;
      const known = this.usage.get(part.operation_id);
      if (known && JSON.stringify(known) !== JSON.stringify(part))
        return { status: 409, body: { error: { code: 'operation_reused', message: 'another one' } } };
      this.usage.set(part.operation_id, part);
      this.usageCalls.push(part.operation_id);
      if (this.loseUsage-- > 0)
        return { status: 500, body: { error: { code: 'internal_error', message: 'lost' } } };
      return { status: 200, body: {} };
    }
    if (path.endsWith('/reserve')) {
      if (BigInt(body['amount']!) > this.available)
        return { status: 402, body: { error: { code: 'insufficient_balance', message: 'not enough' } } };
      return { status: 200, body: { state: 'held' } };
    }
    if (path.endsWith('/void')) return { status: 200, body: { state: 'void' } };
    if (path.endsWith('/span-open')) {
      this.spans.set(body['operation_id']!, { open: body, closed: null });
      return { status: 200, body: {} };
    }
    if (path.endsWith('/span-close')) {
      this.spans.get(body['operation_id']!)!.closed = body['ended_at']!;
      return { status: 200, body: {} };
    }
    return undefined;
  });
}

/** A name, a text and whether it is a directory. */
const tarEntry = (name: string, text: string): Buffer => {
  const head = Buffer.alloc(512);
  head.write(name, 0);
  head.write('0000644\0', 100);
  head.write('0000000\0', 108);
  head.write('0000000\0', 116);
  head.write(`${Buffer.byteLength(text).toString(8).padStart(11, '0')}\0`, 124);
  head.write('00000000000\0', 136);
  head.write('        ', 148);
  head.write('0', 156);
  head.write('ustar\x0000', 257, 'latin1');
  const sum = head.reduce((total, byte) => total + byte, 0);
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  const body = Buffer.from(text);
  return Buffer.concat([head, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
};

/** A gzip tar of some files. */
export function archive(files: Record<string, string> = { 'index.html': '<h1>hello</h1>' }): Buffer {
  return gzipSync(
    Buffer.concat([...Object.entries(files).map(([name, text]) => tarEntry(name, text)), Buffer.alloc(1024)]),
  );
}

export const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** apps-builder alone on a real database, with its neighbours stubbed. */
export class Bench {
  readonly account = randomUUID();
  readonly project = randomUUID();
  readonly key: KeyIdentity = keyOf(this.account);
  /** Another account, with everything allowed. */
  readonly stranger: KeyIdentity = keyOf(randomUUID());

  private constructor(
    readonly nebo: TestProcess,
    readonly databaseUrl: string,
    readonly billing: StubBilling,
    readonly regions: RegionInfo[],
    readonly networking: StubNetworking,
  ) {}

  static async start(env: Record<string, string> = {}): Promise<Bench> {
    const databaseUrl = await freshDatabase();
    const nebo = await startServices({
      databaseUrl,
      definitions: [appsBuilder],
      env: { NEBO_DRAIN_MS: '50', NEBO_RESTART_DELAY_MS: '200', NEBO_KEEP_ALIVE_MS: '500', ...env },
    });
    const regions: RegionInfo[] = [
      { id: region, name: 'local', is_default: true },
      { id: otherRegion, name: 'far', is_default: false },
    ];
    nebo.runtime.targets.set(
      'compute',
      new StubTarget((path) =>
        path === '/internal/v1/regions' ? { status: 200, body: regions } : undefined,
      ),
    );
    const billing = new StubBilling();
    nebo.runtime.targets.set('identity-billing', billing.target);
    const networking = new StubNetworking();
    nebo.runtime.targets.set('networking', networking.target);
    return new Bench(nebo, databaseUrl, billing, regions, networking);
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
    return this.nebo.request('apps-builder', { method, path: `/v1/${path}`, as, body, headers });
  }

  internal(method: string, path: string, body?: unknown): Promise<TestAnswer> {
    return this.nebo.request('apps-builder', { method, path: `/internal/v1/${path}`, as: gateway, body });
  }

  upload(
    path: string,
    bytes: Buffer,
    as: KeyIdentity | null = this.key,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.nebo.request('apps-builder', {
      method: 'POST',
      path: `/v1/${path}`,
      as,
      body: bytes,
      headers: { 'content-type': 'application/gzip', ...headers },
    });
  }

  /** A fresh app that takes folders. @returns its record */
  async app(more: Record<string, unknown> = {}, project = this.project): Promise<TestAnswer['body']> {
    const answer = await this.api('POST', `projects/${project}/apps`, {
      name: `app ${randomUUID()}`,
      source_type: 'upload',
      ...more,
    });
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body;
  }

  /** An app with one queued build. */
  async appWithBuild(
    more: Record<string, unknown> = {},
  ): Promise<{ app: { id: string }; build: { id: string } }> {
    const app = await this.app(more);
    const answer = await this.upload(`apps/${app.id}/deployments`, archive({ 'index.html': randomUUID() }));
    if (answer.status !== 202) throw new Error(answer.text);
    return { app, build: answer.body };
  }

  /** SQL as the database's owner, past row-level security. */
  async sql<R extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    try {
      await client.query('set search_path to apps_builder');
      return (await client.query<R>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** Connection string of the service's own role, which row-level security binds. */
  get roleUrl(): string {
    return roleUrl(
      this.databaseUrl,
      'apps_builder',
      this.nebo.runtime.masterKey.rolePassword('apps_builder'),
    );
  }

  /** The service on a port, for what `inject` cannot show: live streams and chunked bodies. */
  async listen(): Promise<string> {
    return `http://127.0.0.1:${await this.nebo.services.get('apps-builder')!.listen(0)}`;
  }

  signed(as: KeyIdentity = this.key): Record<string, string> {
    return { [identityHeader]: this.nebo.runtime.signer.sign(as) };
  }
}

/** Asks until the answer is truthy. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T | null | undefined | false>,
  ms = 10_000,
): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
