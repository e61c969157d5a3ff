import { keyOf, startServices, type TestProcess } from '@nebo/service-kit/testing';
import { Database, isDatabaseAway } from '@nebo/persistence';
import { type PostgresPart, startPostgres } from '@nebo/test-kit';
import { AccountsService } from '../accounts/accounts.service.js';
import { identityBilling } from '../identity-billing.module.js';
import { PrismaService } from './prisma.service.js';

describe('while PostgreSQL is away', () => {
  let postgres: PostgresPart;
  let nebo: TestProcess;

  beforeAll(async () => {
    postgres = await startPostgres();
    const databaseUrl = await postgres.createDatabase();
    nebo = await startServices({ databaseUrl, definitions: [identityBilling] });
  }, 60_000);
  afterAll(async () => {
    await nebo?.close();
    await postgres?.stop();
  });

  const provider = <T>(of: abstract new (...args: never[]) => T): T =>
    nebo.services.get('identity-billing')!.app.get(of, { strict: false });

  it('answers 503 with a code and when to come again, and goes on when it is back', async () => {
    const made = await provider(AccountsService).create({
      name: 'Acme',
      topup: 0n,
      credits: 0n,
      actor: 'operator',
    });
    const as = keyOf(made.account_id);
    const service = { kind: 'service', service: 'compute', account_id: null } as const;
    const all = () =>
      Promise.all([
        nebo.request('identity-billing', { path: '/v1/projects', as }),
        nebo.request('identity-billing', { path: `/v1/projects/${made.project_id}`, as }),
        nebo.request('identity-billing', {
          path: `/internal/v1/owners/project/${made.project_id}`,
          as: service,
        }),
      ]);
    const running = [
      provider(Database).transaction((tx) => tx.query('select pg_sleep($1)', [60])),
      provider(PrismaService).forAccount(made.account_id, (tx) => tx.$queryRawUnsafe('select pg_sleep(60)')),
    ].map((work) => work.then(() => null).catch((error: unknown) => error));
    await new Promise((resolve) => setTimeout(resolve, 500));
    await postgres.kill();
    for (const error of await Promise.all(running))
      expect([error, isDatabaseAway(error)]).toEqual([error, true]);
    for (const { status, body, headers } of await all()) {
      expect([status, body.error.code]).toEqual([503, 'unavailable']);
      expect(headers['retry-after']).toBe('5');
      expect(body.error.request_id).toEqual(expect.any(String));
    }
    await postgres.restart();
    expect((await all()).map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});
