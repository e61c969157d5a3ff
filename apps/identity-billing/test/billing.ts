import type { EventBus } from '@nebo/bus';
import type { Identity, KeyIdentity, ServiceIdentity } from '@nebo/contracts';
import { keyOf, startServices, type TestAnswer, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { identityBilling } from '../src/identity-billing.module.js';

export const compute: ServiceIdentity = { kind: 'service', service: 'compute', account_id: null };
export const operator: ServiceIdentity = { kind: 'service', service: 'operator', account_id: null };

/** Ten to the ninth: rubles as the internal operations count them. */
export const nano = (rubles: number): string => (BigInt(Math.round(rubles * 1_000_000)) * 1_000n).toString();

/** The service on a database of its own, with shorthands for its doors. */
export interface Billing {
  nebo: TestProcess;
  databaseUrl: string;
  internal(method: string, path: string, body?: unknown, as?: Identity): Promise<TestAnswer>;
  money(name: string, body: object): Promise<TestAnswer>;
  admin(command: string, body: object): Promise<TestAnswer>;
  api(
    method: string,
    path: string,
    as: KeyIdentity,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<TestAnswer>;
  account(
    topup?: string,
    credits?: string,
  ): Promise<{ account_id: string; project_id: string; owner_id: string; as: KeyIdentity }>;
  balance(account: string): Promise<Record<string, string>>;
  /** A provider of the service. */
  provider<T>(of: new (...args: never[]) => T): T;
  /** SQL as the superuser, past row-level security and the service. */
  sql<R = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>;
  /** A connection like that of `sql`, to be released. */
  connect(): Promise<pg.PoolClient>;
  close(): Promise<void>;
}

/** Starts identity-billing for one spec file. */
export async function startBilling(env: Record<string, string> = {}, bus?: EventBus): Promise<Billing> {
  const databaseUrl = await freshDatabase();
  const nebo = await startServices({
    databaseUrl,
    definitions: [identityBilling],
    env,
    ...(bus ? { bus } : {}),
  });
  const superuser = new pg.Pool({
    connectionString: databaseUrl,
    max: 2,
    options: '-c search_path=identity_billing',
  });
  superuser.on('error', () => undefined);
  const internal: Billing['internal'] = (method, path, body, as = compute) =>
    nebo.request('identity-billing', { method, path: `/internal/v1/${path}`, as, body });
  const admin: Billing['admin'] = (command, body) => internal('POST', `operator/${command}`, body, operator);
  return {
    nebo,
    databaseUrl,
    internal,
    admin,
    money: (name, body) => internal('POST', `money/${name}`, body),
    api: (method, path, as, body, headers) =>
      nebo.request('identity-billing', {
        method,
        path: `/v1/${path}`,
        as,
        body,
        ...(headers ? { headers } : {}),
      }),
    account: async (topup, credits) => {
      const made = await admin('account-create', {
        name: 'Test',
        ...(topup ? { topup } : {}),
        ...(credits ? { credits } : {}),
      });
      if (made.status !== 201) throw new Error(made.text);
      return { ...made.body, as: keyOf(made.body.account_id) };
    },
    provider: (of) => nebo.services.get('identity-billing')!.app.get(of),
    balance: async (account) => (await internal('GET', `money/balance/${account}`)).body,
    connect: () => superuser.connect(),
    sql: async <R>(text: string, values: unknown[] = []) => (await superuser.query(text, values)).rows as R[],
    close: async () => {
      await superuser.end();
      await nebo.close();
      await (await sharedPostgres()).stop();
    },
  };
}
