import { randomUUID } from 'node:crypto';
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
      await billing.money('compute-usage', {
        ...operation,
        operation_id: 'usage',
        ...{ app_id: randomUUID(), kind: 'run', hour: started_at, cpu_us: 1, memory_mb_ms: '1' },
        ...{ free: null, description: '' },
      });
      await billing.sql('insert into account_standing (account_id) values ($1)', [account.account_id]);
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

  describe('what cannot be written into the ledger, by the service or past it', () => {
    let account: string;
    let transfer: string;
    beforeEach(async () => {
      account = (await billing.account('1')).account_id;
      const [made] = await service.transaction(
        (tx) =>
          tx.query<{ id: string }>(
            `insert into transfer (account_id, kind, source_service, source_id, description)
             values ($1::uuid, 'charge', 'test', 'x', '') returning id`,
            [account],
          ),
        account,
      );
      transfer = made!.id;
    });
    /** Inserts lines, one list for each statement, in one transaction: as the service and as the superuser. */
    const refused = async (reason: RegExp, ...statements: [transfer: string, amount: number][][]) => {
      const texts = statements.map(
        (lines) =>
          `insert into ledger_line (transfer_id, account_id, book, amount) values ${lines
            .map(([of, amount]) => `('${of}', '${account}', 'money', ${amount})`)
            .join(', ')}`,
      );
      for (const as of [account, 'system']) {
        const wrong = service.transaction(async (tx) => {
          for (const text of texts) await tx.query(text);
        }, as);
        await expect(wrong).rejects.toThrow(reason);
      }
      await expect(billing.sql(texts.join(';'))).rejects.toThrow(reason);
      expect(await billing.sql('select 1 from ledger_line where transfer_id = $1', [transfer])).toEqual([]);
    };

    it('lines that do not sum to zero', async () => {
      await refused(/sum to -1, not to zero/, [
        [transfer, -5],
        [transfer, 4],
      ]);
      const wrong = service.transaction(
        (tx) =>
          tx.query(
            `select ledger_lines($1::uuid, $2::uuid, array['money', 'revenue'], array[-5, 4]::bigint[])`,
            [account, transfer],
          ),
        account,
      );
      await expect(wrong).rejects.toThrow(/sum to -1, not to zero/);
    });

    it('a single line, also when a second statement would make up for it', async () => {
      await refused(/sum to 7, not to zero/, [[transfer, 7]]);
      await refused(/sum to 7, not to zero/, [[transfer, 7]], [[transfer, -7]]);
      const split = billing.sql(
        `with one as (insert into ledger_line (transfer_id, account_id, book, amount) values ($1, $2, 'money', 7))
         select 1`,
        [transfer, account],
      );
      await expect(split).rejects.toThrow(/sum to 7, not to zero/);
    });

    it('two transfers that make up for each other', async () => {
      const [other] = await billing.sql<{ id: string }>(
        `insert into transfer (account_id, kind, source_service, source_id, description)
         values ($1, 'charge', 'test', 'y', '') returning id`,
        [account],
      );
      await refused(/not to zero/, [
        [transfer, 7],
        [other!.id, -7],
      ]);
    });

    it('lines of no transfer, or of another account’s', async () => {
      const nobody = '00000000-0000-4000-8000-000000000000';
      await refused(/the account has no transfer/, [
        [nobody, 7],
        [nobody, -7],
      ]);
      const other = (await billing.account('1')).account_id;
      const [foreign] = await billing.sql<{ id: string }>('select id from transfer where account_id = $1', [
        other,
      ]);
      await refused(/the account has no transfer/, [
        [foreign!.id, 7],
        [foreign!.id, -7],
      ]);
    });

    it('a line more for a transfer that is whole, or a change of its lines', async () => {
      const whole = `insert into ledger_line (transfer_id, account_id, book, amount) values
        ($1, $2, 'money', -5), ($1, $2, 'revenue', 5)`;
      await billing.sql(whole, [transfer, account]);
      const more = `insert into ledger_line (transfer_id, account_id, book, amount) values ($1, $2, 'money', 1)`;
      await expect(billing.sql(more, [transfer, account])).rejects.toThrow(/sum to 1, not to zero/);
      for (const change of [
        'update ledger_line set amount = amount + 1 where transfer_id = $1',
        'delete from ledger_line where transfer_id = $1 and amount > 0',
        'delete from transfer where id = $1',
      ]) {
        await expect(service.transaction((tx) => tx.query(change, [transfer]), account)).rejects.toThrow(
          /append-only/,
        );
        await expect(billing.sql(change, [transfer])).rejects.toThrow(/append-only/);
      }
    });

    it('a transfer or a usage record of an account that does not exist; an account stays', async () => {
      const nobody = '00000000-0000-4000-8000-000000000000';
      for (const text of [
        `insert into transfer (account_id, kind, source_service, source_id, description)
           values ($1::uuid, 'charge', 'test', 'z', '')`,
        `insert into usage_record (account_id, operation_id, kind, amount, facts) values ($1::uuid, 'z', 'compute', 1, '{}')`,
      ]) {
        for (const as of [nobody, 'system'])
          await expect(service.transaction((tx) => tx.query(text, [nobody]), as)).rejects.toThrow(
            /there is no account/,
          );
        await expect(billing.sql(text, [nobody])).rejects.toThrow(/there is no account/);
      }
      await expect(billing.sql('update usage_record set account_id = $1', [nobody])).rejects.toThrow(
        /append-only/,
      );
      await expect(billing.sql('delete from account where id = $1', [account])).rejects.toThrow(
        /never deleted/,
      );
      await expect(
        billing.sql('update account set id = gen_random_uuid() where id = $1', [account]),
      ).rejects.toThrow(/never deleted/);
      // The service reads and writes meanwhile: PostgreSQL may end this one for the sake of its locks.
      const erase = (): Promise<unknown> =>
        billing
          .sql('truncate account cascade')
          .catch((error: { code?: string }) => (error.code === '40P01' ? erase() : Promise.reject(error)));
      await expect(erase()).rejects.toThrow(/never deleted|append-only/);
    });
  });
});
