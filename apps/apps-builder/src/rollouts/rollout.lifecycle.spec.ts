import { sharedPostgres } from '@nebo/test-kit';
import { failedDeployStates } from '../builds/build.mapper.js';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually, pause } from '../../test/harness.js';

describe('rollouts', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  const app = async (id: string) => (await bench.api('GET', `apps/${id}`)).body;
  const build = async (appId: string, id: string) =>
    (await bench.api('GET', `apps/${appId}/builds/${id}`)).body;
  const deployState = (appId: string, id: string, state: string) =>
    eventually(`deploy_state ${state}`, async () => {
      const seen = await build(appId, id);
      return seen.deploy_state === state && seen;
    });
  const deploy = async (appId: string) =>
    (await bench.upload(`apps/${appId}/deployments`, archive({ main: Math.random().toString() }))).body
      .id as string;
  let port = 4_000;
  /** Deploys a server and brings it live. @returns the build and its ready replicas */
  const live = async (appId: string, count = 1) => {
    const id = await deploy(appId);
    await agent.build(id, 'server');
    const replicas = await agent.replicas(id, count);
    for (const replica of replicas) await agent.ready(replica, ++port);
    await deployState(appId, id, 'live');
    return { id, replicas };
  };
  const route = (appId: string, kind: string) =>
    eventually(`route ${kind}`, async () => {
      await edge.fetch();
      const found = edge.of(appId);
      return found?.target.kind === kind && found;
    });

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  beforeEach(() => {
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterEach(() => edge.stop());
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('a new app has a route that says why nothing answers', async () => {
    const { id } = await bench.app();
    expect((await route(id, 'none')).target.reason).toBe('nothing is deployed yet');
  });

  it('a static build is rolling until the edge confirms its route, then live: no replica, no compute', async () => {
    await edge.stop();
    const made = await bench.app();
    const id = await deploy(made.id);
    const sha = await agent.build(id, 'static');
    await route(made.id, 'static');
    await pause(300);
    expect(await build(made.id, id)).toMatchObject({
      status: 'success',
      deploy_state: 'rolling',
      duration_ms: 1234,
    });
    expect(await app(made.id)).toMatchObject({
      status: 'pending',
      current_build_id: null,
      deploy_state: 'rolling',
    });
    // A confirmation of another build, or of an older version, is none.
    const { version } = edge;
    const host = [...edge.routes.entries()].find(([, found]) => found.app_id === made.id)![0];
    await bench.internal('POST', 'routes/applied', { version, routes: [{ host, build_id: null }] });
    await pause(200);
    expect((await build(made.id, id)).deploy_state).toBe('rolling');
    const waiting = bench.api('GET', `apps/${made.id}?wait=live&timeout=10`);
    await edge.confirm();
    expect((await waiting).body).toMatchObject({
      status: 'active',
      current_build_id: id,
      deploy_state: 'live',
    });
    expect(edge.of(made.id)).toMatchObject({
      build_id: id,
      target: { kind: 'static', artifact_sha256: sha },
    });
    expect((await bench.internal('GET', `blobs/${sha}`)).status).toBe(200);
    await agent.poll();
    expect(
      [...agent.wanted.values()].filter((item) => item.kind === 'replica' && item.spec.app_id === made.id),
    ).toEqual([]);
    expect(bench.billing.spans.size).toBe(0);
  });

  it('a server: replicas ready, routes to them, edge, live; no bad word on the way', async () => {
    const made = await bench.app({
      replica_count: 2,
      replica_vcpu: 2,
      replica_memory_mb: 1024,
      readiness_path: '/ok',
    });
    const id = await deploy(made.id);
    const words = new Set<string | null>();
    let watching = true;
    const watch = (async () => {
      while (watching) words.add((await build(made.id, id)).deploy_state);
    })();
    await agent.build(id, 'server');
    const replicas = await agent.replicas(id, 2);
    expect(replicas[0]).toMatchObject({
      kind: 'replica',
      generation: 1,
      spec: {
        account_id: bench.account,
        app_id: made.id,
        build_id: id,
        start_command: 'node main.js',
        vcpu: 2,
        memory_mb: 1024,
        readiness_path: '/ok',
        ready_timeout_ms: 120_000,
        env: [],
        log_stream: replicas[0]!.id,
      },
    });
    await agent.observe(replicas[0]!, 'starting');
    await agent.ready(replicas[0]!, 5_001);
    await pause(200);
    // One of two is not enough.
    expect(edge.of(made.id)?.target.kind).toBe('none');
    await agent.ready(replicas[1]!, 5_002);
    await deployState(made.id, id, 'live');
    watching = false;
    await watch;
    expect(
      [...words].filter((word) => (failedDeployStates as readonly (string | null)[]).includes(word)),
    ).toEqual([]);
    expect(
      edge
        .of(made.id)!
        .target.replicas!.map((replica) => replica.port)
        .sort(),
    ).toEqual([5_001, 5_002]);
    expect(await app(made.id)).toMatchObject({ status: 'active', current_build_id: id });
  });

  it('a second deploy serves from the old revision until the new one is ready and the edge has it; then the old goes after its drain', async () => {
    const made = await bench.app();
    const first = await live(made.id);
    const second = await deploy(made.id);
    await agent.build(second, 'server');
    const [next] = await agent.replicas(second, 1);
    await pause(200);
    expect(edge.of(made.id)!.target.replicas!.map(({ id }) => id)).toEqual([first.replicas[0]!.id]);
    expect((await agent.poll(), agent.wanted.get(first.replicas[0]!.id)!.gone)).toBe(false);
    expect(await app(made.id)).toMatchObject({
      current_build_id: first.id,
      deploy_state: 'rolling',
      status: 'active',
    });
    await agent.ready(next!, 5_100);
    await deployState(made.id, second, 'live');
    expect(edge.of(made.id)).toMatchObject({ build_id: second, target: { replicas: [{ id: next!.id }] } });
    await agent.until('the old one shall go', (item) => item.id === first.replicas[0]!.id && item.gone);
    // Each build keeps its own word: a waiter for the first is not failed by the second.
    expect((await build(made.id, first.id)).deploy_state).toBe('live');
  });

  it('a failed deploy: the old revision goes on serving, the build says never_booted and why', async () => {
    const made = await bench.app();
    const first = await live(made.id);
    const second = await deploy(made.id);
    await agent.build(second, 'server');
    const [bad] = await agent.replicas(second, 1);
    await agent.observe(bad!, 'failed', { reason: 'no answer on port 3000 within 120 s' });
    expect(await deployState(made.id, second, 'never_booted')).toMatchObject({
      status: 'success',
      error: null,
      boot_error: 'no answer on port 3000 within 120 s',
    });
    expect(await app(made.id)).toMatchObject({
      status: 'active',
      current_build_id: first.id,
      deploy_state: 'never_booted',
    });
    expect(edge.of(made.id)).toMatchObject({ build_id: first.id, target: { kind: 'replicas' } });
    await agent.until('the bad one shall go', (item) => item.id === bad!.id && item.gone);
    expect(agent.wanted.get(first.replicas[0]!.id)!.gone).toBe(false);
    // And the next good one is not held up.
    await live(made.id);
  });

  it('a first deploy that fails leaves a route with the reason', async () => {
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [bad] = await agent.replicas(id, 1);
    await agent.observe(bad!, 'failed', { reason: 'exit code 1' });
    await deployState(made.id, id, 'never_booted');
    expect(await app(made.id)).toMatchObject({ status: 'inactive', current_build_id: null });
    await eventually(
      'the reason',
      async () => edge.of(made.id)?.target.reason === 'the newest deploy did not start',
    );
  });

  it('recreate: the old replicas are gone before the new ones start, and come back when these fail', async () => {
    const made = await bench.app({ deploy_strategy: 'recreate' });
    const first = await live(made.id);
    const second = await deploy(made.id);
    await agent.build(second, 'server');
    await agent.until('the old one shall go first', (item) => item.id === first.replicas[0]!.id && item.gone);
    await pause(200);
    await agent.poll();
    expect(
      [...agent.wanted.values()].filter((item) => item.kind === 'replica' && item.spec.build_id === second),
    ).toEqual([]);
    await agent.removeGone();
    const [bad] = await agent.replicas(second, 1);
    await agent.observe(bad!, 'failed', { reason: 'no' });
    await deployState(made.id, second, 'never_booted');
    const [again] = await agent.replicas(first.id, 1);
    await agent.ready(again!, 5_200);
    await eventually('served again', async () => edge.of(made.id)?.target.replicas?.[0]?.id === again!.id);
    expect((await app(made.id)).current_build_id).toBe(first.id);
  });

  it('a build overtaken before it was live ends as cancelled, one that took longer than a newer one too', async () => {
    const made = await bench.app();
    const first = await deploy(made.id);
    const second = await deploy(made.id);
    const third = await deploy(made.id);
    await agent.build(second, 'server');
    const [overtaken] = await agent.replicas(second, 1);
    await agent.build(third, 'server');
    await eventually('overtaken', async () => (await build(made.id, second)).status === 'cancelled');
    const [next] = await agent.replicas(third, 1);
    await agent.until('its replica shall go', (item) => item.id === overtaken!.id && item.gone);
    await agent.ready(next!, 5_300);
    await deployState(made.id, third, 'live');
    await agent.build(first, 'server');
    await eventually('too late', async () => (await build(made.id, first)).status === 'cancelled');
    expect(await build(made.id, first)).toMatchObject({
      deploy_state: null,
      error: 'overtaken by a newer build',
    });
    expect((await app(made.id)).current_build_id).toBe(third);
  });

  it('a crashed replica is replaced; failing while none answers, live again afterwards', async () => {
    const made = await bench.app();
    const { id, replicas } = await live(made.id);
    await agent.observe(replicas[0]!, 'failed', {
      reason: 'out of memory',
      at: new Date(Date.now() + 1_000).toISOString(),
    });
    expect(await deployState(made.id, id, 'failing')).toMatchObject({ boot_error: 'out of memory' });
    await eventually('no route to it', async () => edge.of(made.id)?.target.kind === 'none');
    const [next] = await agent.replicas(id, 1);
    expect(next!.id).not.toBe(replicas[0]!.id);
    await agent.ready(next!, 5_400);
    expect(await deployState(made.id, id, 'live')).toMatchObject({ boot_error: null });
    await eventually('the route', async () => edge.of(made.id)?.target.replicas?.[0]?.id === next!.id);
  });

  it('no edge confirms: unverified with the reason, and live as soon as one does', async () => {
    await edge.stop();
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'static');
    await route(made.id, 'static');
    await eventually(
      'switching',
      async () =>
        (
          await bench.sql(
            "select 1 from lifecycle where kind = 'rollout' and id = $1 and state = 'switching'",
            [made.id],
          )
        ).length,
    );
    await bench.sql(
      "update lifecycle set entered_at = now() - interval '2 minutes', run_at = now() where kind = 'rollout' and id = $1",
      [made.id],
    );
    expect((await deployState(made.id, id, 'unverified')).boot_error).toContain('no edge has confirmed');
    await edge.confirm();
    expect(await deployState(made.id, id, 'live')).toMatchObject({ boot_error: null });
  });

  it('scaling: more replicas beside the running ones, fewer after a drain; size makes a new revision at once', async () => {
    const made = await bench.app({ replica_count: 1 });
    const { id, replicas } = await live(made.id);
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 3 });
    const three = await agent.replicas(id, 3);
    expect(three.map((item) => item.id)).toContain(replicas[0]!.id);
    for (const replica of three) await agent.ready(replica, ++port, new Date(Date.now() + 2_000));
    await eventually('three routes', async () => edge.of(made.id)?.target.replicas?.length === 3);
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 1 });
    await eventually('one route', async () => edge.of(made.id)?.target.replicas?.length === 1);
    await eventually(
      'two shall go',
      async () => (await agent.poll(), three.filter((item) => agent.wanted.get(item.id)!.gone).length === 2),
    );
    expect((await bench.sql('select 1 from revision where app_id = $1', [made.id])).length).toBe(1);

    await agent.removeGone();
    await bench.api('PATCH', `apps/${made.id}`, { replica_memory_mb: 2048 });
    const two = await agent.replicas(id, 2);
    const bigger = two.find((item) => item.kind === 'replica' && item.spec.memory_mb === 2048)!;
    expect((await build(made.id, id)).deploy_state).toBe('live');
    await agent.ready(bigger, ++port);
    await eventually(
      'served by the bigger one',
      async () => edge.of(made.id)?.target.replicas?.[0]?.id === bigger.id,
    );
    await agent.until(
      'the smaller shall go',
      (item) => item.id === two.find(({ id }) => id !== bigger.id)!.id && item.gone,
    );
  });

  it('permanent replicas: one span of their number and size while they serve, closed on stop; billing away delays no deploy', async () => {
    const made = await bench.app({ replica_count: 1 });
    const open = () =>
      [...bench.billing.spans.values()].filter(
        (span) => span.open['resource'] === `app:${made.id}` && span.closed === null,
      );
    bench.billing.away = true;
    const { id } = await live(made.id);
    expect(open()).toEqual([]);
    bench.billing.away = false;
    await eventually('opened', async () => open().length === 1);
    // 450 + 220/2 rubles a month.
    expect(open()[0]!.open).toMatchObject({ account_id: bench.account, amount_per_month: '560000000000' });
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 2 });
    await eventually(
      'of two',
      async () => open().length === 1 && open()[0]!.open['amount_per_month'] === '1120000000000',
    );
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 0 });
    await eventually('closed', async () => open().length === 0);
    const mine = [...bench.billing.spans.values()].filter(
      (span) => span.open['resource'] === `app:${made.id}`,
    );
    expect(mine.map((span) => span.closed! >= String(span.open['started_at']))).toEqual([true, true]);
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 1 });
    await eventually('opened again', async () => open().length === 1);
    await bench.api('DELETE', `apps/${made.id}`);
    await eventually('closed with the app', async () => open().length === 0);
    expect(id).toBeDefined();
  });

  it('DELETE works in every state: replicas, routes and builds go', async () => {
    const serving = await bench.app();
    await live(serving.id);
    const starting = await bench.app();
    const begun = await deploy(starting.id);
    await agent.build(begun, 'server');
    await agent.replicas(begun, 1);
    const building = await bench.app();
    const running = await deploy(building.id);
    await agent.observe(await agent.until('wanted', ({ id }) => id === running), 'building');
    const fresh = await bench.app();
    for (const { id } of [serving, starting, building, fresh]) {
      const host = (await bench.api('GET', `apps/${id}/domains`)).body.data[0].domain;
      expect((await bench.api('DELETE', `apps/${id}`)).status).toBe(204);
      await eventually('no route', async () => !edge.routes.has(host));
    }
    await agent.observe(
      await agent.until('called off', ({ id, gone }) => id === running && gone),
      'cancelled',
    );
    await eventually('all over', async () => {
      await agent.removeGone();
      const rows = await bench.sql(
        'select 1 from lifecycle where kind = $1 and id = any($2) and ended_at is null',
        ['rollout', [serving.id, starting.id, building.id, fresh.id]],
      );
      return rows.length === 0;
    });
    expect(
      await bench.sql('select 1 from replica where app_id = any($1) and ended_at is null', [
        [serving.id, starting.id],
      ]),
    ).toEqual([]);
    expect(
      await bench.sql("select 1 from build where app_id = $1 and status <> 'cancelled'", [building.id]),
    ).toEqual([]);
    const { Housekeeping } = await import('../shared/housekeeping.js');
    await bench.sql("update app set deleted_at = now() - interval '8 days' where id = any($1)", [
      [serving.id, fresh.id],
    ]);
    await bench.nebo.services.get('apps-builder')!.app.get(Housekeeping).run();
    expect(await bench.sql('select 1 from app where id = any($1)', [[serving.id, fresh.id]])).toEqual([]);
  });

  it('routes: a delta names what is removed; a version of another database asks for everything', async () => {
    const made = await bench.app();
    await route(made.id, 'none');
    await edge.stop();
    const host = (await bench.api('GET', `apps/${made.id}/domains`)).body.data[0].domain;
    const since = edge.version;
    await bench.api('DELETE', `apps/${made.id}`);
    expect(
      await eventually('removed', async () => {
        const { body } = await bench.internal('GET', `routes?since=${since}`);
        return body.removed.includes(host) && body;
      }),
    ).toMatchObject({ full: false });
    expect((await bench.internal('GET', 'routes?since=00000000.1')).body).toMatchObject({
      full: true,
      removed: [],
    });
    expect(await bench.internal('POST', 'routes/applied', { version: '00000000.1' })).toMatchObject({
      status: 409,
      body: { error: { code: 'unknown_version' } },
    });
    expect((await bench.internal('POST', 'routes/applied', { version: 1 })).status).toBe(422);
    expect(
      (await bench.internal('POST', 'routes/applied', { version: since, routes: [{ host: 1 }] })).status,
    ).toBe(422);
    const { version } = (await bench.internal('GET', 'routes')).body;
    const begun = Date.now();
    expect((await bench.internal('GET', `routes?since=${version}&wait=1`)).body).toEqual({
      version: expect.any(String),
      full: false,
      routes: [],
      removed: [],
    });
    expect(Date.now() - begun).toBeGreaterThan(900);
    const waiting = bench.internal('GET', `routes?since=${version}&wait=20`);
    const next = await bench.app();
    expect((await waiting).body.routes[0].app_id).toBe(next.id);
  });
});
