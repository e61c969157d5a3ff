import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { promisify } from 'node:util';
import pg from 'pg';
import { kitFolder, waitFor } from './parts.js';
import { freshDatabase, sharedPostgres, startPostgres } from './postgres.js';

async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end().catch(() => undefined);
  }
}

describe('startPostgres', () => {
  it('starts PostgreSQL 18 in UTF-8 and removes everything on stop', async () => {
    const part = await startPostgres();
    const [row] = await ask(
      part.url,
      `select current_setting('server_version_num')::int as version,
      current_setting('server_encoding') as encoding, current_setting('fsync') as fsync`,
    );
    expect(row!['version']).toBeGreaterThanOrEqual(180_000);
    expect(row).toMatchObject({ encoding: 'UTF8', fsync: 'off' });
    await part.stop();
    await part.stop();
    await expect(ask(part.url, 'select 1')).rejects.toThrow();
  });

  it('keeps acknowledged writes over kill and restart, on the same url', async () => {
    const part = await startPostgres({ settings: { work_mem: '8MB' } });
    await ask(part.url, 'create table t (id int primary key)');
    for (let round = 1; round <= 3; round += 1) {
      await ask(part.url, `insert into t values (${round})`);
      await part.kill();
      await expect(ask(part.url, 'select 1')).rejects.toThrow();
      await part.restart();
      expect(await ask(part.url, 'select count(*)::int as n from t')).toEqual([{ n: round }]);
    }
    await part.restart();
    expect(await ask(part.url, 'show work_mem')).toEqual([{ work_mem: '8MB' }]);
    await part.stop();
  });

  it('kills under an open connection and restarts at once', async () => {
    const part = await startPostgres();
    const client = new pg.Client({ connectionString: part.url });
    client.on('error', () => undefined);
    await client.connect();
    const running = client.query('select pg_sleep(20)').catch((error: Error) => error);
    await part.kill();
    expect(await running).toBeInstanceOf(Error);
    await part.restart();
    expect(await ask(part.url, 'select 1 as one')).toEqual([{ one: 1 }]);
    await part.stop();
  });

  it('keeps fsync on when durable', async () => {
    const part = await startPostgres({ durable: true });
    expect(await ask(part.url, 'show fsync')).toEqual([{ fsync: 'on' }]);
    await part.stop();
  });

  it('starts four at once, each its own', async () => {
    const parts = await Promise.all([1, 2, 3, 4].map(() => startPostgres()));
    expect(new Set(parts.map((part) => part.url)).size).toBe(4);
    await Promise.all(parts.map((part) => part.stop()));
  });

  it('says what is wrong with a bad setting instead of waiting', async () => {
    await expect(startPostgres({ settings: { no_such_setting: '1' } })).rejects.toThrow(/no_such_setting/);
  });
});

describe('sharedPostgres', () => {
  it('gives each test an empty database on one server', async () => {
    const [one, two] = [await freshDatabase(), await freshDatabase()];
    expect(one).not.toBe(two);
    await ask(one, 'create table only_here ()');
    expect(await ask(two, `select 1 from pg_tables where tablename = 'only_here'`)).toEqual([]);
    expect(new URL(one).port).toBe(new URL((await sharedPostgres()).url).port);
  });
});

describe('what a killed test process leaves', () => {
  it('is ended and removed by the guardian', async () => {
    const script = `
      import { registerHooks } from 'node:module';
      registerHooks({ resolve: (name, context, next) => context.parentURL?.includes('/test-kit/src/') && name.startsWith('.')
        ? next(name.replace(/\\.js$/, '.ts'), context) : next(name, context) });
      const { startPostgres } = await import(${JSON.stringify(new URL('./postgres.ts', import.meta.url).href)});
      const part = await startPostgres();
      console.log(part.url);
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, NEBO_TEST_PARTS: 'local' },
    });
    const [line] = (await once(child.stdout, 'data')) as [Buffer];
    const url = line.toString().trim();
    const [{ pid }] = (await ask(
      url,
      `select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int as pid`,
    )) as [{ pid: number }];
    const folder = (await ask(url, 'show data_directory'))[0]!['data_directory'] as string;
    child.kill('SIGKILL');
    await waitFor('the end of postgres', 5_000, async () => {
      const { stdout } = await promisify(execFile)('ps', ['-o', 'stat=', '-p', String(pid)]).catch(() => ({
        stdout: '',
      }));
      return stdout === '' || stdout.startsWith('Z') ? true : undefined;
    });
    await waitFor('its folder gone', 5_000, async () =>
      readdirSync(kitFolder()).every((name) => !folder.includes(`/${name}/`)) ? true : undefined,
    );
  });
});
