import { Database } from '@nebo/persistence';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { TestRouter } from '../../test/routers.js';

describe('row-level security', () => {
  let billing: Billing;
  let service: Database;
  beforeAll(async () => {
    billing = await startBilling();
    service = new Database({
      url: billing.nebo.runtime.databaseUrl('identity_billing'),
      schema: 'identity_billing',
    });
  });
  afterAll(async () => {
    await service?.close();
    await billing?.close();
  });

  const tenantTables = async () => {
    const rows = await billing.sql<{ name: string }>(
      `select distinct c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
       where c.relnamespace = 'identity_billing'::regnamespace and c.relkind in ('r', 'p')
         and (a.attname = 'account_id' or c.relname = 'account') order by 1`,
    );
    return rows.map((row) => row.name);
  };

  it('every table with an account has it enabled and forced, with a policy that checks reads and writes', async () => {
    const tables = await tenantTables();
    expect(tables).toEqual(
      expect.arrayContaining([
        'account',
        'api_key',
        'balance',
        'ledger_line',
        'project',
        'settlement',
        'slice',
        'span_charge',
        'usage_record',
      ]),
    );
    const rows = await billing.sql<{ name: string; forced: boolean; policies: string }>(
      `select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as forced,
         count(p.*) filter (where p.polqual is not null and p.polwithcheck is not null and p.polcmd = '*') as policies
       from pg_class c left join pg_policy p on p.polrelid = c.oid
       where c.relnamespace = 'identity_billing'::regnamespace and c.relname = any($1) group by c.oid`,
      [tables],
    );
    expect(rows).toHaveLength(tables.length);
    for (const row of rows) expect(row).toEqual({ name: row.name, forced: true, policies: '1' });
  });

  it("the service's role owns nothing and cannot pass by", async () => {
    const [role] = await billing.sql(
      `select rolsuper, rolbypassrls from pg_roles where rolname = 'nebo_identity_billing'`,
    );
    expect(role).toEqual({ rolsuper: false, rolbypassrls: false });
    const owned = await billing.sql(
      `select relname from pg_class where relowner = 'nebo_identity_billing'::regrole
       union all select proname from pg_proc where proowner = 'nebo_identity_billing'::regrole or (prosecdef and pronamespace = 'identity_billing'::regnamespace)`,
    );
    expect(owned).toEqual([]);
  });

  it('a query under one account sees nothing of another, and without an account nothing at all', async () => {
    const one = await billing.account('100', '10');
    const two = await billing.account('100', '10');
    for (const account of [one, two]) {
      const operation = { operation_id: 'op', account_id: account.account_id };
      await billing.money('reserve', { ...operation, kind: 'control', amount: nano(1), description: '' });
      await billing.money('capture', { ...operation, usage: { kind: 'compute' } });
      const { id } = (await billing.admin('inference-key-create', { account: account.account_id })).body;
      await billing.money('reserve', {
        ...operation,
        operation_id: 'k',
        key_id: id,
        kind: 'inference',
        amount: nano(1),
        description: '',
      });
      const started_at = new Date(Date.now() - 7_200_000).toISOString();
      await billing.money('span-open', {
        ...operation,
        resource: 'r',
        amount_per_month: nano(1),
        started_at,
        description: '',
      });
      await billing.money('span-close', { ...operation, ended_at: new Date().toISOString() });
      const router = await new TestRouter(billing, account.account_id, id).open();
      await router.take(nano(2));
      await router.settle([router.ended(nano(1))]);
    }
    for (const table of await tenantTables()) {
      const column = table === 'account' ? 'id' : 'account_id';
      const seen = await service.transaction(
        (tx) => tx.query<{ account: string }>(`select distinct ${column}::text as account from ${table}`),
        one.account_id,
      );
      expect([table, seen]).toEqual([table, [{ account: one.account_id }]]);
      expect([table, await service.query(`select 1 from ${table}`)]).toEqual([table, []]);
      expect(await service.transaction((tx) => tx.query(`select 1 from ${table}`), '')).toEqual([]);
    }
    const touched = await service.transaction(
      (tx) =>
        tx.query('update project set name = $1 where account_id = $2::uuid returning id', [
          'taken',
          two.account_id,
        ]),
      one.account_id,
    );
    expect(touched).toEqual([]);
    const insert = service.transaction(
      (tx) =>
        tx.query(
          `insert into project (id, account_id, name, name_key) values (gen_random_uuid(), $1::uuid, 'x', 'x')`,
          [two.account_id],
        ),
      one.account_id,
    );
    await expect(insert).rejects.toThrow(/row-level security/);
  });

  it('the ledger, span charges and the audit log are append-only, even for the superuser', async () => {
    for (const table of ['transfer', 'ledger_line', 'span_charge', 'settlement', 'audit_entry']) {
      await expect(billing.sql(`delete from ${table}`)).rejects.toThrow(/append-only/);
      await expect(billing.sql(`update ${table} set account_id = account_id`)).rejects.toThrow(/append-only/);
      await expect(billing.sql(`truncate ${table} cascade`)).rejects.toThrow(/append-only/);
    }
  });

  it('lines that do not sum to zero are refused at commit', async () => {
    const { account_id } = await billing.account('1');
    const wrong = service.transaction(async (tx) => {
      const [transfer] = await tx.query<{ id: string }>(
        `insert into transfer (account_id, kind, source_service, source_id, description) values ($1::uuid, 'charge', 'test', 'x', '') returning id`,
        [account_id],
      );
      await tx.query(
        `select ledger_lines($1::uuid, $2::uuid, array['money', 'revenue'], array[-5, 4]::bigint[])`,
        [account_id, transfer!.id],
      );
    }, account_id);
    await expect(wrong).rejects.toThrow(/sum to -1, not to zero/);
  });
});
