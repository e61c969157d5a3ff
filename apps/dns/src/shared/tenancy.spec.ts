import { randomUUID } from 'node:crypto';
import { secured, securedTables, viewOf } from '@nebo/service-kit/testing';
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
    expect(await bench.sql(securedTables, ['dns'])).toEqual(secured(tenantTables));
  });

  it.each(tenantTables)(
    '%s: nothing without an account, nothing of another one, all of the own; nothing foreign can be erased',
    async (table) => {
      const accounts = { own: bench.account, stranger: bench.stranger.account_id };
      expect(await viewOf(role, table, accounts)).toEqual({ nobody: 0, stranger: 0, own: 1, erased: 0 });
    },
  );

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
