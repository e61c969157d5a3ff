import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { Bench, eventually, pause } from '../../test/harness.js';

describe('environment variables', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  const set = (
    app: string,
    name: string,
    value: string,
    is_secret = false,
    headers: Record<string, string> = {},
  ) => bench.api('POST', `apps/${app}/env`, { name, value, is_secret }, bench.key, headers);
  const list = async (app: string) =>
    (await bench.api('GET', `projects/${bench.project}/apps/${app}/env?limit=200`)).body;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterAll(async () => {
    await edge.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 creates and sets in place with the same id; secrets come back masked, others as they are', async () => {
    const app = await bench.app();
    const first = await set(app.id, 'TOKEN', 'sesame', true);
    expect(first).toMatchObject({ status: 201, body: { name: 'TOKEN', value: '********', is_secret: true } });
    const again = await set(app.id, 'TOKEN', 'other', true);
    expect(again).toMatchObject({ status: 201, body: { id: first.body.id, value: '********' } });
    expect(await set(app.id, 'COLOUR', 'grün = "ja"\nzwei')).toMatchObject({
      status: 201,
      body: { value: 'grün = "ja"\nzwei', is_secret: false },
    });
    expect(await list(app.id)).toMatchObject({
      count: 2,
      total: 2,
      data: [
        { name: 'COLOUR', value: 'grün = "ja"\nzwei' },
        { name: 'TOKEN', value: '********' },
      ],
    });
    // A secret that becomes an ordinary variable is shown only with its new value.
    expect((await set(app.id, 'TOKEN', 'plain', false)).body).toMatchObject({
      id: first.body.id,
      value: 'plain',
    });
  });

  it('204 deletes; 404 for what is not there, foreign or of another app; 401, 422', async () => {
    const app = await bench.app();
    const other = await bench.app();
    const { id } = (await set(app.id, 'A', '1')).body;
    expect((await bench.api('DELETE', `apps/${other.id}/env/${id}`)).status).toBe(404);
    expect((await bench.api('DELETE', `apps/${app.id}/env/${id}`, undefined, bench.stranger)).status).toBe(
      404,
    );
    expect((await bench.api('GET', `apps/${app.id}/env`, undefined, bench.stranger)).status).toBe(404);
    expect(
      (await bench.api('POST', `apps/${app.id}/env`, { name: 'A', value: 'x' }, bench.stranger)).status,
    ).toBe(404);
    expect((await bench.api('GET', `apps/${app.id}/env`, undefined, null)).status).toBe(401);
    for (const body of [
      { name: 'A' },
      { name: 'A', value: '' },
      { name: '', value: 'x' },
      { name: 'A=B', value: 'x' },
      { name: 'A B', value: 'x' },
      { name: 'my-name', value: 'x' },
      { name: 'a.b', value: 'x' },
      { name: '1A', value: 'x' },
      { name: 'Ю', value: 'x' },
      { name: 'A', value: 'x\0' },
      { name: 'A', value: 5 },
      { name: 'A', value: 'x', is_secret: 'yes' },
    ]) {
      expect((await bench.api('POST', `apps/${app.id}/env`, body)).status).toBe(422);
    }
    expect((await bench.api('DELETE', `apps/${app.id}/env/${id.toUpperCase()}`)).status).toBe(204);
    expect((await bench.api('DELETE', `apps/${app.id}/env/${id}`)).status).toBe(404);
    expect((await list(app.id)).data).toEqual([]);
  });

  it('race: two first settings of one name make one variable', async () => {
    const app = await bench.app();
    const answers = await Promise.all(Array.from({ length: 8 }, (_, at) => set(app.id, 'RACE', String(at))));
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(201));
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1);
    expect((await list(app.id)).total).toBe(1);
  });

  it('has room for 256 KiB in all, also for many at once, and for what a program can be given', async () => {
    const app = await bench.app();
    // Letters of three bytes: few characters, and more than Linux would hand on.
    expect((await set(app.id, 'LONG', '€'.repeat(60_000))).status).toBe(422);
    const big = 'x'.repeat(60_000);
    const answers = await Promise.all(Array.from({ length: 8 }, (_, at) => set(app.id, `BIG_${at}`, big)));
    const made = answers.filter(({ status }) => status === 201);
    expect(made).toHaveLength(4);
    for (const refused of answers.filter(({ status }) => status !== 201))
      expect(refused).toMatchObject({ status: 409, body: { error: { code: 'env_limit' } } });
    expect((await list(app.id)).total).toBe(4);
    // What is there may be set anew and made smaller, and room comes back with a deletion.
    const { id, name } = made[0]!.body;
    expect((await set(app.id, name, 'y'.repeat(60_000))).status).toBe(201);
    expect((await set(app.id, name, 'y'.repeat(65_000))).status).toBe(201);
    expect((await set(app.id, 'OTHER', big)).status).toBe(409);
    expect((await bench.api('DELETE', `apps/${app.id}/env/${id}`)).status).toBe(204);
    expect((await set(app.id, 'OTHER', big)).status).toBe(201);
  });

  it('repeats its answer for one Idempotency-Key', async () => {
    const app = await bench.app();
    const headers = { 'idempotency-key': randomUUID() };
    const first = await set(app.id, 'K', 'v', true, headers);
    expect((await set(app.id, 'K', 'v', true, headers)).body).toEqual(first.body);
    expect((await set(app.id, 'K', 'w', true, headers)).status).toBe(422);
  });

  it('reach the build and the replicas opened, and nothing else ever: no table, no event, no answer holds a secret in plain text', async () => {
    const canary = `canary-${randomUUID()}`;
    const app = await bench.app();
    await set(app.id, 'SECRET', canary, true, { 'idempotency-key': randomUUID() });
    await set(app.id, 'OPEN', `${canary}-open`);
    const { archive } = await import('../../test/harness.js');
    const build = (
      await bench.upload(`apps/${app.id}/deployments`, archive({ env: canary.length.toString() }))
    ).body;
    const env = [
      { name: 'OPEN', value: `${canary}-open`, secret: false },
      { name: 'SECRET', value: canary, secret: true },
    ];
    expect((await agent.until('wanted', ({ id }) => id === build.id)).spec.env).toEqual(env);
    await agent.build(build.id, 'server');
    const [replica] = await agent.replicas(build.id, 1);
    expect(replica!.spec.env).toEqual(env);
    await agent.ready(replica!);
    await bench.api('PATCH', `apps/${app.id}`, { name: 'renamed' });
    const tables = await bench.sql<{ name: string }>(
      "select table_name as name from information_schema.tables where table_schema = 'apps_builder' and table_type = 'BASE TABLE'",
    );
    expect(tables.length).toBeGreaterThan(12);
    for (const { name } of tables) {
      expect([
        name,
        await bench.sql(`select 1 as found from "${name}" t where t::text like '%' || $1 || '%'`, [canary]),
      ]).toEqual([name, []]);
      expect([
        name,
        await bench.sql(
          `select 1 as found from "${name}" t where t::text like '%' || encode($1::bytea, 'hex') || '%'`,
          [Buffer.from(canary)],
        ),
      ]).toEqual([name, []]);
    }
    // What shall go needs no secrets any more.
    await bench.api('DELETE', `apps/${app.id}`);
    expect((await agent.until('gone', ({ id, gone }) => id === replica!.id && gone)).spec.env).toEqual([]);
  });

  it('several changes within the delay restart once, rolling; the old replica serves until the new one is ready', async () => {
    const { app, build } = await bench.appWithBuild();
    await agent.build(build.id, 'server');
    const [old] = await agent.replicas(build.id, 1);
    await agent.ready(old!, 6_001);
    await eventually(
      'live',
      async () => (await bench.api('GET', `apps/${app.id}`)).body.deploy_state === 'live',
    );
    const { id } = (await set(app.id, 'ONE', '1')).body;
    await set(app.id, 'TWO', '2');
    await bench.api('DELETE', `apps/${app.id}/env/${id}`);
    const two = await agent.replicas(build.id, 2);
    const next = two.find((item) => item.id !== old!.id)!;
    expect(next.spec.env).toEqual([{ name: 'TWO', value: '2', secret: false }]);
    await pause(400);
    expect(
      (await bench.sql("select 1 from revision where app_id = $1 and cause = 'restart'", [app.id])).length,
    ).toBe(1);
    expect(edge.of(app.id)!.target.replicas!.map((replica) => replica.port)).toEqual([6_001]);
    await agent.ready(next, 6_002);
    await eventually('switched', async () => edge.of(app.id)?.target.replicas?.[0]?.port === 6_002);
    await agent.until('the old one shall go', (item) => item.id === old!.id && item.gone);
    expect((await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.deploy_state).toBe('live');
  });

  it('a restart that does not come up leaves the old replica serving: stale_serving with the reason', async () => {
    const { app, build } = await bench.appWithBuild();
    await agent.build(build.id, 'server');
    const [old] = await agent.replicas(build.id, 1);
    await agent.ready(old!, 6_010);
    await eventually(
      'live',
      async () => (await bench.api('GET', `apps/${app.id}`)).body.deploy_state === 'live',
    );
    await set(app.id, 'BAD', '1');
    const next = (await agent.replicas(build.id, 2)).find((item) => item.id !== old!.id)!;
    await agent.observe(next, 'failed', { reason: 'BAD is bad' });
    await eventually(
      'stale',
      async () =>
        (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.deploy_state === 'stale_serving',
    );
    expect((await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.boot_error).toBe('BAD is bad');
    expect(edge.of(app.id)!.target.replicas!.map((replica) => replica.port)).toEqual([6_010]);
  });

  it('a variable of an app that runs nowhere restarts nothing', async () => {
    const { app, build } = await bench.appWithBuild();
    await agent.build(build.id, 'static');
    await eventually(
      'live',
      async () => (await bench.api('GET', `apps/${app.id}`)).body.deploy_state === 'live',
    );
    await set(app.id, 'X', '1');
    await eventually(
      'forgotten',
      async () =>
        (await bench.sql('select 1 from app where id = $1 and restart_at is null', [app.id])).length,
    );
    expect((await bench.sql('select 1 from revision where app_id = $1', [app.id])).length).toBe(1);
  });
});
