import { roleUrl } from '@nebo/persistence';
import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { Bench, publicKey } from '../../test/harness.js';

describe('row-level security', () => {
  let bench: Bench;
  let client: pg.Client;
  beforeAll(async () => {
    bench = await Bench.start();
    await bench.vm();
    await bench.api('POST', 'ssh-keys', { name: 'k', public_key: publicKey() });
    const password = bench.nebo.runtime.masterKey.rolePassword('compute');
    client = new pg.Client({ connectionString: roleUrl(bench.databaseUrl, 'compute', password) });
    await client.connect();
  });
  afterAll(async () => {
    await client?.end();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it.each(['vm', 'vm_interface', 'vm_count', 'ssh_key'])(
    '%s: the service’s role sees the rows of the account it works for',
    async (table) => {
      const count = async (account: string) => {
        await client.query('begin');
        await client.query("select set_config('app.account', $1, true)", [account]);
        const { rows } = await client.query<{ count: number }>(`select count(*)::int as count from ${table}`);
        await client.query('rollback');
        return rows[0]!.count;
      };
      expect(await count('')).toBe(0);
      expect(await count(bench.stranger.account_id)).toBe(0);
      expect(await count(bench.account)).toBe(1);
    },
  );

  it.each(['vm_renewal', 'vm_backup', 'vm_resize', 'vm_span'])('%s is bound too', async (table) => {
    const [row] = await bench.sql<{ bound: boolean }>(
      'select relrowsecurity and relforcerowsecurity as bound from pg_class where oid = $1::regclass',
      [table],
    );
    expect(row!.bound).toBe(true);
  });
});
