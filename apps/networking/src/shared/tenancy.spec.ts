import { secured, securedTables, viewOf } from '@nebo/service-kit/testing';
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
    expect(await bench.sql(securedTables, ['networking'])).toEqual(secured(tenantTables));
  });

  it.each(tenantTables)(
    '%s: nothing without an account, nothing of another one, all of the own; nothing foreign can be erased',
    async (table) => {
      const accounts = { own: bench.account, stranger: bench.stranger.account_id };
      expect(await viewOf(role, table, accounts)).toEqual({ nobody: 0, stranger: 0, own: 1, erased: 0 });
    },
  );
});
