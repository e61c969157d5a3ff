import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { Bench, FakeAgent } from '../../test/harness.js';

const tenantTables = ['floating_ip', 'nat_gateway', 'port', 'span', 'vpc'];

describe('row-level security, the second belt', () => {
  let bench: Bench;
  let role: pg.Client;

  beforeAll(async () => {
    bench = await Bench.start();
    role = new pg.Client({ connectionString: bench.roleUrl });
    await role.connect();
    // One of each kind: the gateway's port and address are the only ones.
    const vpc = await bench.activeVpc(new FakeAgent(bench));
    await bench.api('POST', `vpcs/${vpc.id}/nat-gateway`);
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
       where n.nspname = 'networking' and c.relkind = 'r'
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
});
