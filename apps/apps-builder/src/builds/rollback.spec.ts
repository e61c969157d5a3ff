import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';

describe('back to an earlier build', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  let versions = 0;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const deploy = async (app: string, kind: 'server' | 'static') => {
    const { id } = (
      await bench.upload(`apps/${app}/deployments`, archive({ main: `${app} ${(versions += 1)}` }))
    ).body;
    await agent.build(id, kind);
    return id as string;
  };
  const shows = (app: string, id: string, state: string) =>
    eventually(state, async () => {
      const { body } = await bench.api('GET', `apps/${app}/builds/${id}`);
      return body.deploy_state === state && body;
    });
  const back = (app: string, id: string, headers: Record<string, string> = {}) =>
    bench.api('POST', `apps/${app}/builds/${id}/rollback`, undefined, bench.key, headers);
  const current = async (app: string) => (await bench.api('GET', `apps/${app}`)).body.current_build_id;

  it('200: its files serve again without a build; forward again; once for one Idempotency-Key', async () => {
    const app = (await bench.app()).id as string;
    const [first, second] = [await deploy(app, 'static'), await deploy(app, 'static')];
    await shows(app, second, 'live');
    const key = { 'idempotency-key': randomUUID() };
    expect(await back(app, first, key)).toMatchObject({
      status: 200,
      body: { id: first, app_id: app, site_id: app, status: 'success' },
    });
    await eventually('served', async () => edge.of(app)!.build_id === first);
    await shows(app, first, 'live');
    expect(await current(app)).toBe(first);
    expect((await back(app, first, key)).status).toBe(200);
    expect(await back(app, first)).toMatchObject({ status: 409, body: { error: { code: 'build_is_live' } } });
    expect((await bench.api('GET', `apps/${app}/builds`)).body.total).toBe(2);
    expect((await back(app, second)).status).toBe(200);
    await eventually('served', async () => edge.of(app)!.build_id === second);
  });

  it('a server: new replicas of the old build with the variables of today, and no command before it; a newer deploy overtakes', async () => {
    const app = (await bench.app({ replica_count: 1 })).id as string;
    const first = await deploy(app, 'server');
    await agent.ready((await agent.replicas(first, 1))[0]!, 8_001);
    await shows(app, first, 'live');
    const second = await deploy(app, 'server');
    await agent.ready((await agent.replicas(second, 1))[0]!, 8_002);
    await shows(app, second, 'live');
    await bench.sql("update app set predeploy_command = 'node migrate.js' where id = $1", [app]);
    expect((await back(app, first)).status).toBe(200);
    expect(await back(app, first)).toMatchObject({
      status: 409,
      body: { error: { code: 'deploy_in_progress' } },
    });
    await shows(app, first, 'rolling');
    await eventually('replicas of it again', async () => {
      await agent.poll();
      return [...agent.wanted.values()].some(
        ({ kind, spec, gone }) => kind === 'replica' && spec.build_id === first && !gone,
      );
    });
    expect((await bench.api('GET', `apps/${app}/job-runs`)).body.data).toEqual([]);
    await bench.sql('update app set predeploy_command = null where id = $1', [app]);
    const third = await deploy(app, 'server');
    expect((await shows(app, first, 'never_booted')).boot_error).toBe('overtaken by a newer deploy');
    await agent.ready((await agent.replicas(third, 1))[0]!, 8_003);
    await shows(app, third, 'live');
    // It can serve again all the same.
    expect((await back(app, first)).status).toBe(200);
  });

  it('404 for what is not there, foreign or of another app; 409 for a build that made nothing; 401', async () => {
    const { app, build } = await bench.appWithBuild();
    const other = (await bench.app()).id;
    expect(await back(app.id, build.id)).toMatchObject({
      status: 409,
      body: { error: { code: 'no_artifact' } },
    });
    expect((await back(other, build.id)).status).toBe(404);
    expect((await back(app.id, randomUUID())).status).toBe(404);
    expect(
      (await bench.api('POST', `apps/${app.id}/builds/${build.id}/rollback`, undefined, bench.stranger))
        .status,
    ).toBe(404);
    expect(
      (await bench.api('POST', `apps/${app.id}/builds/${build.id}/rollback`, undefined, null)).status,
    ).toBe(401);
  });
});
