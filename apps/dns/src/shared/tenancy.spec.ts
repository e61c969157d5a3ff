import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { Bench } from '../../test/harness.js';
import { Housekeeping } from './housekeeping.js';

const tenantTables = ['record', 'released_owner', 'rrset', 'zone', 'zone_change'];

describe('row-level security, the second belt', () => {
  let bench: Bench;
  let role: pg.Client;

  beforeAll(async () => {
    bench = await Bench.start();
    role = new pg.Client({ connectionString: bench.roleUrl });
    await role.connect();
    const zone = await bench.zone();
    await bench.record(zone, { name: 'a', type: 'A', content: '192.0.2.1' });
    await bench.internal('POST', 'records/delete-managed', {
      account_id: bench.account,
      owner: `app_domain:${randomUUID()}`,
    });
  });
  afterAll(async () => {
    await role?.end();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('every table with an account has it enabled and forced, with one policy for reading and writing', async () => {
    const found = await bench.sql<{ name: string; enabled: boolean; forced: boolean; policies: number }>(
      `select c.relname as name, c.relrowsecurity as enabled, c.relforcerowsecurity as forced,
         (select count(*)::int from pg_policy p where p.polrelid = c.oid and p.polqual is not null and p.polwithcheck is not null) as policies
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where n.nspname = 'dns' and c.relkind = 'r'
         and exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'account_id') order by 1`,
    );
    expect(found).toEqual(tenantTables.map((name) => ({ name, enabled: true, forced: true, policies: 1 })));
  });

  it('nothing without an account, nothing of another one, all of the own; nothing foreign can be written', async () => {
    const within = async <T>(account: string | null, work: () => Promise<T>): Promise<T> => {
      await role.query('begin');
      if (account !== null) await role.query("select set_config('app.account', $1, true)", [account]);
      try {
        return await work();
      } finally {
        await role.query('rollback');
      }
    };
    for (const table of tenantTables) {
      const count = async () =>
        (await role.query<{ count: number }>(`select count(*)::int as count from ${table}`)).rows[0]!.count;
      expect(await within(null, count)).toBe(0);
      expect(await within(bench.stranger.account_id, count)).toBe(0);
      expect(await within(bench.account, count)).toBe(1);
      const erased = within(bench.stranger.account_id, () => role.query(`delete from ${table}`));
      expect((await erased).rowCount).toBe(0);
    }
  });

  it('housekeeping forgets old changes and owners, and nothing young', async () => {
    const run = () => bench.nebo.services.get('dns')!.app.get(Housekeeping).run();
    const count = async () =>
      (
        await bench.sql<{ changes: number; owners: number }>(
          'select (select count(*)::int from zone_change) as changes, (select count(*)::int from released_owner) as owners',
        )
      )[0];
    await run();
    expect(await count()).toEqual({ changes: 1, owners: 1 });
    await bench.sql("update zone_change set at = now() - interval '2 hours'");
    await bench.sql("update released_owner set at = now() - interval '8 days'");
    await run();
    expect(await count()).toEqual({ changes: 0, owners: 0 });
  });
});
