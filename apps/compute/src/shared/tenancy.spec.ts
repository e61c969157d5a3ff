import { roleUrl } from '@nebo/persistence';
import { secured, securedTables, viewOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { Bench, publicKey } from '../../test/harness.js';

const tenantTables = [
  'ssh_key',
  'vm',
  'vm_backup',
  'vm_count',
  'vm_interface',
  'vm_renewal',
  'vm_resize',
  'vm_span',
];

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

  it('every table with an account has it enabled and forced, with one policy for reading and writing', async () => {
    expect(await bench.sql(securedTables, ['compute'])).toEqual(secured(tenantTables));
  });

  it.each(['vm', 'vm_interface', 'vm_count', 'ssh_key'])(
    '%s: the service’s role sees the rows of the account it works for',
    async (table) => {
      const accounts = { own: bench.account, stranger: bench.stranger.account_id };
      expect(await viewOf(client, table, accounts)).toMatchObject({ nobody: 0, stranger: 0, own: 1 });
    },
  );
});
