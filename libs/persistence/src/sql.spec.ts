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

describe('transactions in few round trips', () => {
  let database: Database;
  beforeAll(async () => {
    database = new Database({
      url: await freshDatabase(),
      schema: 'public',
      max: 1,
      onError: () => undefined,
    });
    await database.query('create table thing (id int primary key, word text, at timestamptz, bytes bytea)');
  });
  beforeEach(() => database.query('truncate thing'));
  afterAll(async () => {
    await database?.close();
  });
  const put = (tx: Sql, id: number) =>
    tx.query<{ id: number }>('insert into thing (id) values ($1::int) returning id', [id]);
  const ids = async () =>
    (await database.query<{ id: number }>('select id from thing order by id')).map(({ id }) => id);
  const backend = async (sql: Sql) =>
    (await sql.query<{ pid: number }>('select pg_backend_pid() as pid where $1::int = 1', [1]))[0]!.pid;

  it('what is said in one turn is answered in its order, and committed as one', async () => {
    const rows = await database.transaction((tx) => Promise.all([put(tx, 1), put(tx, 2), put(tx, 3)]));
    expect(rows).toEqual([[{ id: 1 }], [{ id: 2 }], [{ id: 3 }]]);
    expect(await ids()).toEqual([1, 2, 3]);
  });

  it('after one that fails nothing of the turn is carried out, and nothing of the transaction stays', async () => {
    for (let round = 0; round < 3; round += 1) {
      const outcome = database.transaction(async (tx) => {
        await put(tx, 1);
        await Promise.all([put(tx, 2), put(tx, 1), put(tx, 3)]);
      });
      await expect(outcome).rejects.toMatchObject({ code: '23505' });
      expect(await ids()).toEqual([]);
    }
    // The connection goes on, with what it had prepared.
    await database.transaction((tx) => put(tx, 4));
    expect(await ids()).toEqual([4]);
  });

  it('a text that cannot be prepared fails each time with the same words', async () => {
    const wrong = () => database.transaction((tx) => tx.query('select nothing where $1::int = 1', [1]));
    for (let round = 0; round < 3; round += 1) await expect(wrong()).rejects.toMatchObject({ code: '42703' });
    await database.query('alter table thing add column nothing int');
    const right = () =>
      database.transaction((tx) => tx.query('select nothing from thing where $1::int = 1', [1]));
    for (let round = 0; round < 3; round += 1) expect(await right()).toEqual([]);
  });

  it('the last statement is committed with its answer; one that fails commits nothing', async () => {
    const last = (id: number) =>
      database.transaction(async (tx) => {
        await put(tx, id);
        return Promise.all([put(tx, id + 1), put(tx, id + 2), tx.commit()]);
      });
    expect(await last(1)).toEqual([[{ id: 2 }], [{ id: 3 }], undefined]);
    expect(await ids()).toEqual([1, 2, 3]);
    await put(database, 12);
    await expect(last(10)).rejects.toMatchObject({ code: '23505' });
    expect(await ids()).toEqual([1, 2, 3, 12]);
    const after = database.transaction(async (tx) => {
      await Promise.all([put(tx, 20), tx.commit()]);
      await put(tx, 21);
    });
    await expect(after).rejects.toThrow('the transaction is over');
    expect(await ids()).toEqual([1, 2, 3, 12, 20]);
  });

  it('a commit that is refused is the failure of the last statement', async () => {
    await database.query('create table other (id int references thing (id) deferrable initially deferred)');
    const refused = database.transaction((tx) =>
      Promise.all([tx.query('insert into other values ($1::int)', [99]), tx.commit()]),
    );
    await expect(refused).rejects.toMatchObject({ code: '23503' });
    expect(await database.query('select 1 from other')).toEqual([]);
    await database.query('drop table other');
  });

  it('an error that the work swallows commits nothing, and leaves the connection as it was', async () => {
    const swallowed = await database.transaction(async (tx) => {
      await put(tx, 1);
      await put(tx, 1).catch(() => undefined);
      return 'went on';
    });
    expect([swallowed, await ids()]).toEqual(['went on', []]);
    expect(await database.transaction((tx) => put(tx, 2).then(() => 'fine'))).toBe('fine');
    // Also the very first one.
    await database.transaction((tx) => put(tx, 2).catch(() => undefined));
    expect(await ids()).toEqual([2]);
    await database.transaction((tx) => put(tx, 3));
    expect(await ids()).toEqual([2, 3]);
  });

  it('texts without parameters go between those with some', async () => {
    await database.transaction(async (tx) => {
      await tx.query('insert into thing (id) values (1); insert into thing (id) values (2)');
      await put(tx, 3);
      await tx.query('delete from thing where id = 2');
    });
    expect(await ids()).toEqual([1, 3]);
  });

  it('reads alone, and writes nothing', async () => {
    await put(database, 5);
    const text = 'select id from thing where id > $1::int';
    for (let round = 0; round < 3; round += 1) expect(await database.read(text, [1])).toEqual([{ id: 5 }]);
    const write = database.read('insert into thing (id) values ($1::int) returning id', [6]);
    await expect(write).rejects.toMatchObject({ code: '25006' });
  });

  it('values arrive as they were; a date that is none is refused before anything is sent', async () => {
    const at = new Date('2026-11-21T17:00:00.123Z');
    const bytes = Buffer.from([0, 1, 255]);
    const text = 'insert into thing (id, word, at, bytes) values ($1, $2, $3, $4) returning word, at, bytes';
    for (const [id, word] of [
      [1, 'a\\b"c'],
      [2, null],
      [3, ''],
    ] as const)
      expect(await database.query(text, [id, word, at, bytes])).toEqual([{ word, at, bytes }]);
    const never = database.transaction((tx) => tx.query(text, [4, '', new Date(Number.NaN), bytes]));
    await expect(never).rejects.toThrow(RangeError);
    expect(await ids()).toEqual([1, 2, 3]);
  });

  it('a connection that was cut while it lay idle is replaced, and one cut in the middle is an error', async () => {
    const other = new Database({ url: database.url, schema: 'public', max: 1 });
    const idle = await backend(database);
    const cut = (pid: number) => other.query('select pg_terminate_backend($1::int)', [pid]);
    await cut(idle);
    await database.transaction((tx) => put(tx, 1));
    const middle = database.transaction(async (tx) => {
      await cut(await backend(tx));
      await put(tx, 2);
    });
    await expect(middle).rejects.toThrow();
    await database.transaction((tx) => put(tx, 3));
    expect(await ids()).toEqual([1, 3]);
    await other.close();
  });

  it('tells of connections that are lost, not of those that it ends itself', async () => {
    const told: string[] = [];
    const one = new Database({
      url: database.url,
      schema: 'public',
      max: 1,
      onError: ({ message }) => told.push(message),
    });
    await database.query('select pg_terminate_backend($1::int)', [await backend(one)]);
    for (let waited = 0; told.length === 0 && waited < 5_000; waited += 10)
      await new Promise((resolve) => setTimeout(resolve, 10));
    expect(told).toContain('terminating connection due to administrator command');
    const before = told.length;
    const client = await one.pool.connect();
    const closing = one.close();
    client.emit('error', new Error('PostgreSQL stops'));
    client.release(true);
    await closing;
    expect(told).toHaveLength(before);
  });
});
