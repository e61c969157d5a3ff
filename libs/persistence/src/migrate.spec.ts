import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { commonMigrations, migrate, roleUrl } from './migrate.js';
import { Database } from './sql.js';

afterAll(async () => (await sharedPostgres()).stop());

describe('migrations', () => {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-migrations-'));
  const open: Database[] = [];
  const write = (name: string, sql: string) => {
    mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, name, 'migration.sql'), sql);
  };
  const plan = (schema: string) => [{ schema, migrations: [commonMigrations, folder], password: 'pw' }];
  const as = (url: string, schema: string) => {
    const database = new Database({ url: roleUrl(url, schema, 'pw'), schema });
    open.push(database);
    return database;
  };

  beforeAll(() =>
    write('001_thing', 'create table thing (id bigint primary key, at timestamptz not null default now())'),
  );
  afterAll(async () => {
    await Promise.all(open.map((database) => database.close()));
    rmSync(folder, { recursive: true });
  });

  it('are applied once, also when ten processes start together', async () => {
    const url = await freshDatabase();
    const applied = await Promise.all(Array.from({ length: 10 }, () => migrate(url, plan('one'))));
    expect(applied.flat().filter((name) => name === 'one/001_thing')).toHaveLength(1);
    expect(await migrate(url, plan('one'))).toEqual([]);
  });

  it('a service’s role reaches its own schema and no other, and owns nothing', async () => {
    const url = await freshDatabase();
    await migrate(url, [...plan('one'), ...plan('two')]);
    const one = as(url, 'one');
    expect(await one.query('insert into thing (id) values (9007199254740993) returning id')).toEqual([
      { id: 9007199254740993n },
    ]);
    await expect(one.query('select * from two.thing')).rejects.toThrow('permission denied');
    await expect(one.query('drop table thing')).rejects.toThrow('must be owner');
    await expect(one.query('create table other (id int)')).rejects.toThrow('permission denied');
  });

  it('a role that may create schemas and roles is enough, also the second time', async () => {
    const url = await freshDatabase();
    const admin = new Database({ url, schema: 'public' });
    open.push(admin);
    const name = `operator_${Date.now()}`;
    await admin.query(`create role ${name} login createrole nosuperuser password 'pw'`);
    await admin.query(`grant create on database "${new URL(url).pathname.slice(1)}" to ${name}`);
    const own = new URL(url);
    own.username = name;
    const schema = `s${Date.now()}`;
    expect((await migrate(own.toString(), plan(schema))).length).toBeGreaterThan(0);
    write('003_more', 'create table more (id bigint)');
    expect(await migrate(own.toString(), plan(schema))).toEqual([`${schema}/003_more`]);
    expect(await as(url, schema).query('select * from more')).toEqual([]);
    rmSync(join(folder, '003_more'), { recursive: true });
  });

  it('a changed or failing migration stops with its name, and leaves nothing half done', async () => {
    const url = await freshDatabase();
    await migrate(url, plan('one'));
    write('002_bad', 'create table half (id int); select nonsense');
    await expect(migrate(url, plan('one'))).rejects.toThrow(/one\/002_bad failed: .*nonsense/);
    await expect(as(url, 'one').query('select * from half')).rejects.toThrow('does not exist');
    rmSync(join(folder, '002_bad'), { recursive: true });
    write('001_thing', 'create table thing (id int primary key)');
    await expect(migrate(url, plan('one'))).rejects.toThrow(
      'one/001_thing was changed after it had been applied',
    );
  });
});

describe('database', () => {
  let database: Database;
  beforeAll(async () => {
    const url = await freshDatabase();
    await migrate(url, [{ schema: 'one', migrations: [commonMigrations], password: 'pw' }]);
    database = new Database({ url: roleUrl(url, 'one', 'pw'), schema: 'one' });
  });
  afterAll(async () => {
    await database?.close();
  });

  it('a transaction that throws leaves nothing, and gives its connection back', async () => {
    for (let round = 0; round < 20; round += 1) {
      const failing = database.transaction(async (tx) => {
        await tx.query("insert into inbox (consumer, event_id) values ('c', gen_random_uuid())");
        throw new Error('no');
      });
      await expect(failing).rejects.toThrow('no');
    }
    expect(await database.query('select 1 from inbox')).toEqual([]);
  });

  it('outlives a connection that is cut between two statements of a transaction', async () => {
    const cut = database.transaction(async (tx) => {
      const [row] = await tx.query<{ pid: number }>('select pg_backend_pid() as pid');
      await database.query('select pg_terminate_backend($1)', [row!.pid]);
      await new Promise((resolve) => setTimeout(resolve, 100));
      await tx.query('select 1');
    });
    await expect(cut).rejects.toThrow();
    expect(await database.query('select 1 as one')).toEqual([{ one: 1 }]);
  });

  it('begins on another connection when those at hand were cut while they lay idle', async () => {
    // A role and a pool of its own: a connection that was cut and has not said so yet would be the next test's.
    const url = await freshDatabase();
    await migrate(url, [{ schema: 'cut', migrations: [commonMigrations], password: 'pw' }]);
    const own = new Database({ url: roleUrl(url, 'cut', 'pw'), schema: 'cut' });
    await Promise.all(Array.from({ length: 6 }, () => own.query('select pg_sleep(0.05)')));
    // In one process, PostgreSQL's word of it may come before or after the next use: both must go well.
    for (let round = 0; round < 5; round += 1) {
      await own.transaction((tx) =>
        tx.query(
          'select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()',
        ),
      );
      expect(await own.transaction((tx) => tx.query('select 1 as one'))).toEqual([{ one: 1 }]);
    }
    await own.close();
  });

  it('sets the account for the transaction only', async () => {
    const read = "select current_setting('app.account', true) as account";
    expect(await database.transaction((tx) => tx.query(read), 'a-1')).toEqual([{ account: 'a-1' }]);
    const after = await Promise.all(
      Array.from({ length: 6 }, () => database.query<{ account: string | null }>(read)),
    );
    expect(after.flat().every(({ account }) => !account)).toBe(true);
  });

  it('hears notifications, and says so after a lost connection', async () => {
    const heard: string[] = [];
    const stop = await database.listen('one_test', (payload) => heard.push(payload));
    await database.query("select pg_notify('one_test', 'x')");
    await until(() => heard.includes('x'));
    await database
      .query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'nebo-one-listen'",
      )
      .catch(() => undefined);
    await until(() => heard.includes(''));
    await stop();
  });
});

async function until(condition: () => boolean): Promise<void> {
  for (let waited = 0; !condition(); waited += 20) {
    if (waited > 5_000) throw new Error('waited 5 s in vain');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
