import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { Database, type Sql, sqlArray } from './sql.js';

afterAll(async () => (await sharedPostgres()).stop());

describe('an array as text', () => {
  let database: Database;
  beforeAll(async () => {
    database = new Database({ url: await freshDatabase(), schema: 'public' });
  });
  afterAll(async () => {
    await database?.close();
  });
  const back = async (type: string, values: Parameters<typeof sqlArray>[0]) =>
    (await database.query<{ back: unknown[] }>(`select $1::${type}[] as back`, [sqlArray(values)]))[0]!.back;

  it('arrives as it was, whatever its texts hold', async () => {
    const texts = ['', 'NULL', 'null', '"', '\\', '\\"', 'a,b', '{c}', ' d ', 'e\nf\t', '’й😀', '%$1'];
    expect(await back('text', texts)).toEqual(texts);
    expect(await back('text', [])).toEqual([]);
    expect(await back('text', [null, 'a', undefined])).toEqual([null, 'a', null]);
    expect(await back('boolean', [true, false, null])).toEqual([true, false, null]);
    expect(await back('integer', [1, null, -3])).toEqual([1, null, -3]);
    expect((await back('bigint', [9_007_199_254_740_993n, null])).map(String)).toEqual([
      '9007199254740993',
      'null',
    ]);
    expect(await back('float8', [1_790_000_000_123, 0.5])).toEqual([1_790_000_000_123, 0.5]);
  });
});

describe('statements that are said again', () => {
  let database: Database;
  beforeAll(async () => {
    database = new Database({ url: await freshDatabase(), schema: 'public', max: 1, account: 'system' });
  });
  afterAll(async () => {
    await database?.close();
  });
  const prepared = async () =>
    (
      await database.query<{ statement: string }>(
        'select statement from pg_prepared_statements order by prepare_time',
      )
    ).map(({ statement }) => statement);

  it('are prepared from the second time on, those without parameters never', async () => {
    const text = 'select $1::int + 1 as sum';
    for (let sum = 1; sum <= 3; sum += 1)
      expect(await database.query(text, [sum])).toEqual([{ sum: sum + 1 }]);
    await database.transaction((tx) => tx.query('select $1::text as said', ['once']));
    await database.query('select 1 as one');
    await database.query('select 1 as one');
    expect(await prepared()).toEqual([text]);
  });

  it('a connection whose plans are of no use any more is replaced', async () => {
    await database.query('create table grown (a int)');
    await database.query('insert into grown values (1)');
    const all = () => database.transaction((tx) => tx.query('select * from grown where a = $1::int', [1]));
    await all();
    await all();
    await database.query('alter table grown add column b int');
    await expect(all()).rejects.toThrow('cached plan must not change result type');
    expect(await all()).toEqual([{ a: 1, b: null }]);
  });

  it('row-level security sees what was said: outside of transactions only where the database is for all accounts', async () => {
    const account = async (sql: Sql) =>
      (await sql.query<{ account: string }>("select current_setting('app.account', true) as account"))[0]!
        .account;
    const id = '6f1f5e9c-3f0c-4b5a-9d1e-0d5b1c2a3f4e';
    expect(await account(database)).toBe('system');
    expect(await database.transaction(account, id)).toBe(id);
    expect(await database.snapshot(account, id)).toBe(id);
    expect(await account(database)).toBe('system');
    const tenant = new Database({ url: database.url, schema: 'public', max: 1 });
    expect(await tenant.transaction(account, id)).toBe(id);
    expect(await account(tenant)).toBe('');
    await tenant.close();
  });
});
