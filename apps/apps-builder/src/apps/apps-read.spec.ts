import { randomUUID } from 'node:crypto';
import { Database } from '@nebo/persistence';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';

describe('GET of one app, read with others of the same moment', () => {
  let bench: Bench;
  const mine: string[] = [];
  const theirs: string[] = [];

  beforeAll(async () => {
    bench = await Bench.start();
    for (let count = 0; count < 8; count += 1) {
      mine.push((await bench.app()).id);
      const body = { name: `app ${count}`, source_type: 'upload' };
      theirs.push((await bench.api('POST', `projects/${randomUUID()}/apps`, body, bench.stranger)).body.id);
    }
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('race: two accounts in one turn never see each other’s apps, and each gets the app that it asked for', async () => {
    const database = bench.nebo.services.get('apps-builder')!.app.get(Database);
    const named = database.named.bind(database);
    const statements: string[][] = [];
    database.named = (name, text, values) => {
      if (name === 'app_get_many') statements.push(values[0] as string[]);
      return named(name, text, values);
    };
    const absent = randomUUID();
    const asked = [...mine, ...theirs, absent].flatMap((id) => [
      { id, as: bench.key, found: mine.includes(id) },
      { id, as: bench.stranger, found: theirs.includes(id) },
    ]);
    const answers = await Promise.all(
      asked.map(({ id, as }) => bench.api('GET', `apps/${id}`, undefined, as)),
    );
    expect(answers.map(({ status, body }) => (status === 200 ? body.id : status))).toEqual(
      asked.map(({ id, found }) => (found ? id : 404)),
    );
    database.named = named;
    expect(statements.length).toBeLessThan(asked.length / 2);
    expect(statements.some((accounts) => new Set(accounts).size === 2)).toBe(true);
  });

  it('race: who has written sees it, whatever others are reading', async () => {
    const [id] = mine;
    let reading = true;
    const others = Array.from({ length: 8 }, async () => {
      while (reading) await bench.api('GET', `apps/${id}`);
    });
    for (let count = 0; count < 15; count += 1) {
      const name = `name ${count}`;
      expect((await bench.api('PATCH', `apps/${id}`, { name })).status).toBe(200);
      expect((await bench.api('GET', `apps/${id}`)).body.name).toBe(name);
    }
    reading = false;
    await Promise.all(others);
    expect((await bench.api('DELETE', `apps/${id}`)).status).toBe(204);
    expect((await bench.api('GET', `apps/${id}`)).status).toBe(404);
  });

  it('an id that is none is refused alone', async () => {
    const answers = await Promise.all(
      ['x', mine[1]!, "' or true", mine[2]!.toUpperCase()].map((id) =>
        bench.api('GET', `apps/${encodeURIComponent(id)}`),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual([404, 200, 404, 200]);
  });

  it('a failure reaches all that were read together, and the next are read again', async () => {
    await bench.sql('alter function app_get_many rename to app_get_gone');
    const failed = await Promise.all(mine.slice(1).map((id) => bench.api('GET', `apps/${id}`)));
    expect(new Set(failed.map(({ status }) => status))).toEqual(new Set([500]));
    await bench.sql('alter function app_get_gone rename to app_get_many');
    const well = await Promise.all(mine.slice(1).map((id) => bench.api('GET', `apps/${id}`)));
    expect(new Set(well.map(({ status }) => status))).toEqual(new Set([200]));
  });

  it('row-level security binds each read of a batch by itself', async () => {
    const database = new Database({ url: bench.roleUrl, schema: 'apps_builder', max: 1 });
    try {
      const [answer] = await database.query<{ found: ({ id: string } | null)[] }>(
        'select app_get_many($1, $2) as found',
        [
          [bench.account, bench.stranger.account_id, bench.account, bench.stranger.account_id] as never,
          [mine[1]!, mine[1]!, theirs[0]!, theirs[0]!] as never,
        ],
      );
      expect(answer!.found.map((app) => app?.id ?? null)).toEqual([mine[1], null, null, theirs[0]]);
      // The last account does not stay with the connection.
      expect(await database.query('select id from app')).toEqual([]);
    } finally {
      await database.close();
    }
  });
});
