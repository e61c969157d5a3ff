import type { RunSpec } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually, pause } from '../../test/harness.js';

describe('the command before a deploy', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  let versions = 0;

  beforeAll(async () => {
    bench = await Bench.start({ NEBO_RESTART_DELAY_MS: '50' });
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const command = 'node migrate.js';
  const create = async (more: object = {}) =>
    (await bench.app({ replica_count: 1, predeploy_command: command, ...more })).id as string;
  const deploy = async (app: string, kind: 'server' | 'static' = 'server') => {
    const source = archive({ main: `${app} ${(versions += 1)}` });
    const { id } = (await bench.upload(`apps/${app}/deployments`, source)).body;
    await agent.build(id, kind);
    return id as string;
  };
  const wantedRun = (build: string) =>
    agent.until('the command is wanted', ({ kind, spec }) => kind === 'run' && spec.build_id === build);
  const build = async (app: string, id: string) => (await bench.api('GET', `apps/${app}/builds/${id}`)).body;
  const shows = (app: string, id: string, state: string) =>
    eventually(state, async () => {
      const found = await build(app, id);
      return found.deploy_state === state && found;
    });
  const runs = async (app: string) => (await bench.api('GET', `apps/${app}/job-runs`)).body.data;
  const replicasOf = (id: string) =>
    [...agent.wanted.values()].filter(({ kind, spec }) => kind === 'replica' && spec.build_id === id);
  /** A version with its command done, live at a port. */
  const live = async (app: string, port: number) => {
    const id = await deploy(app);
    await agent.observe(await wantedRun(id), 'success', { facts: { exit_code: 0 } });
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!, port);
    await shows(app, id, 'live');
    return id;
  };

  it('runs once in the new version, with its variables, before anything of it starts; then it goes live', async () => {
    const app = await create();
    await bench.api('POST', `apps/${app}/env`, { name: 'DATABASE', value: 'sesame', is_secret: true });
    // The change's own restart would make a second revision in the middle of the first one's way.
    await eventually('the restart is over', async () => {
      const [row] = await bench.sql('select restart_at from app where id = $1::uuid', [app]);
      return row!['restart_at'] === null;
    });
    const id = await deploy(app);
    const item = await wantedRun(id);
    expect(item.spec as RunSpec).toMatchObject({
      ...{ command, timeout_ms: 900_000, begun: false },
      env: [{ name: 'DATABASE', value: 'sesame', secret: true }],
    });
    await agent.observe(item, 'running');
    await eventually('shown', async () => (await runs(app))[0]?.status === 'running');
    expect(await runs(app)).toMatchObject([
      { kind: 'predeploy', job_id: null, build_id: id, command, triggered_by: 'deploy' },
    ]);
    expect(replicasOf(id)).toEqual([]);
    expect(await build(app, id)).toMatchObject({ status: 'success', deploy_state: 'rolling' });
    await agent.observe(item, 'success', { facts: { exit_code: 0 } });
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!, 7_001);
    await shows(app, id, 'live');

    // Other variables are the same version: its command is not run again.
    await bench.api('POST', `apps/${app}/env`, { name: 'MODE', value: 'b' });
    const next = (await agent.replicas(id, 2)).find((one) => one.id !== replica!.id)!;
    await agent.ready(next, 7_002);
    await eventually('restarted', async () => edge.of(app)?.target.replicas?.[0]?.port === 7_002);
    expect(await runs(app)).toHaveLength(1);
  });

  it.each([
    ['error', 'the command exited with code 3: no such table'],
    ['timeout', 'the command did not end within 900 s'],
  ] as const)(
    '%s: the version never starts, says why and where its log is, and the old one serves',
    async (state, reason) => {
      const app = await create();
      const good = await live(app, 7_010);
      const id = await deploy(app);
      const item = await wantedRun(id);
      await agent.observe(item, state, { reason, facts: { exit_code: state === 'error' ? 3 : null } });
      expect((await shows(app, id, 'never_booted')).boot_error).toBe(
        `the pre-deploy command failed: ${reason} (its log is in job run ${item.id})`,
      );
      await agent.poll();
      expect(replicasOf(id)).toEqual([]);
      expect((await bench.api('GET', `apps/${app}`)).body.current_build_id).toBe(good);
      expect(edge.of(app)!.target.replicas!.map(({ port }) => port)).toEqual([7_010]);
    },
  );

  it('a newer deploy does not cut it off, and has its own after it', async () => {
    const app = await create();
    const first = await deploy(app);
    const item = await wantedRun(first);
    await agent.observe(item, 'running');
    const second = await deploy(app);
    await pause(300);
    expect((await runs(app)).map(({ status }: { status: string }) => status)).toEqual(['running']);
    await agent.observe(item, 'success', { facts: { exit_code: 0 } });
    await agent.observe(await wantedRun(second), 'success', { facts: { exit_code: 0 } });
    const [replica] = await agent.replicas(second, 1);
    await agent.ready(replica!, 7_020);
    await shows(app, second, 'live');
    expect(await build(app, first)).toMatchObject({
      status: 'cancelled',
      error: 'overtaken by a newer build',
    });
  });

  it('a deploy that is passed over before it began ends too: nobody waits for it for ever', async () => {
    const app = await create();
    const served = await live(app, 7_030);
    const first = await deploy(app);
    const item = await wantedRun(first);
    await agent.observe(item, 'running');
    // Neither of the two begins while the command runs, and the newer one takes the place of both.
    const second = await deploy(app);
    await shows(app, second, 'rolling');
    expect((await bench.api('POST', `apps/${app}/builds/${served}/rollback`)).status).toBe(200);
    expect(await build(app, second)).toMatchObject({
      status: 'cancelled',
      deploy_state: null,
      error: 'overtaken by a newer build',
    });
    const events = await bench.api('GET', `apps/${app}/events?build_id=${second}`);
    expect(events.text).toContain('event: done');
    await shows(app, served, 'rolling');
    const third = await deploy(app);
    // It has never stopped serving.
    await shows(app, served, 'live');
    await agent.observe(item, 'success', { facts: { exit_code: 0 } });
    await agent.observe(await wantedRun(third), 'success', { facts: { exit_code: 0 } });
    const [replica] = await agent.replicas(third, 1);
    await agent.ready(replica!, 7_031);
    await shows(app, third, 'live');
    expect(await build(app, first)).toMatchObject({ status: 'cancelled' });
  });

  it('a static site has no server to run it in; an empty one is none; a deleted app’s is called off', async () => {
    const site = await create();
    const page = await deploy(site, 'static');
    await shows(site, page, 'live');
    expect(await runs(site)).toEqual([]);
    const cleared = await create();
    expect((await bench.api('PATCH', `apps/${cleared}`, { predeploy_command: '' })).status).toBe(200);
    const id = await deploy(cleared);
    await agent.replicas(id, 1);
    expect(await runs(cleared)).toEqual([]);
    const gone = await create();
    const item = await wantedRun(await deploy(gone));
    await agent.observe(item, 'running');
    expect((await bench.api('DELETE', `apps/${gone}`)).status).toBe(204);
    await agent.until('called off', (one) => one.id === item.id && one.gone);
  });
});
