import { type Wanted } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually, pause } from '../../test/harness.js';

/** What the control plane makes of apps with `replica_count` 0, as far as it sees them. */
describe('apps on demand', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  let clock: number;

  const build = async (appId: string, id: string) =>
    (await bench.api('GET', `apps/${appId}/builds/${id}`)).body;
  const deployState = (appId: string, id: string, state: string) =>
    eventually(`deploy_state ${state}`, async () => {
      const seen = await build(appId, id);
      return seen.deploy_state === state && seen;
    });
  const deploy = async (appId: string): Promise<string> =>
    (await bench.upload(`apps/${appId}/deployments`, archive({ main: Math.random().toString() }))).body.id;
  /** Later than all before: an older word changes nothing. */
  const later = () => new Date((clock = Math.max(clock, Date.now()) + 1_000));
  const see = (item: Wanted, state: 'ready' | 'sleeping' | 'starting', more: object = {}) =>
    agent.onDemand(item as never, state, { at: later(), ...more });
  const wakes = (appId: string, id: string) =>
    eventually(`the route wakes ${id}`, async () => edge.of(appId)?.target.wake?.id === id);
  /** Deploys, proves the replica ready once and lets it sleep. */
  const asleep = async (appId: string) => {
    const id = await deploy(appId);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    await see(replica!, 'ready');
    await deployState(appId, id, 'live');
    await see(replica!, 'sleeping');
    return { id, replica: replica! };
  };

  beforeAll(async () => {
    bench = await Bench.start({ NEBO_IDLE_TIMEOUT: '45' });
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  beforeEach(() => {
    clock = Date.now();
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('one replica that may sleep: proven ready once before the switch, then the route says whom to wake', async () => {
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    expect(replica).toMatchObject({ spec: { on_demand: { idle_ms: 45_000, proven: false } } });
    await agent.observe(replica!, 'starting', { facts: { wakeable: true } });
    await pause(200);
    expect(edge.of(made.id)!.target.kind).toBe('none');
    await see(replica!, 'ready');
    await deployState(made.id, id, 'live');
    const route = edge.of(made.id)!;
    expect(route).toMatchObject({
      build_id: id,
      target: { kind: 'replicas', replicas: [], wake: { id: replica!.id } },
    });
    const { change } = (await bench.sql('select change from route where app_id = $1', [made.id]))[0] as {
      change: string;
    };

    // Asleep, waking, awake and asleep again: nothing moves here, nothing is wanted gone or anew, nothing is charged.
    for (const state of ['sleeping', 'starting', 'ready', 'sleeping'] as const) {
      await see(replica!, state);
      await pause(150);
      expect(await build(made.id, id)).toMatchObject({ deploy_state: 'live', boot_error: null });
    }
    expect((await bench.api('GET', `apps/${made.id}`)).body).toMatchObject({
      status: 'active',
      deploy_state: 'live',
      replica_count: 0,
    });
    await agent.poll();
    expect(
      [...agent.wanted.values()].filter((item) => item.spec.app_id === made.id && item.kind === 'replica'),
    ).toEqual([expect.objectContaining({ id: replica!.id, gone: false, generation: 1 })]);
    expect((await bench.sql('select change from route where app_id = $1', [made.id]))[0]).toEqual({ change });
    expect(
      [...bench.billing.spans.values()].filter((span) => span.open['resource'] === `app:${made.id}`),
    ).toEqual([]);
    // Whoever asks for everything learns that it may begin asleep.
    agent.cursor = null;
    await agent.poll();
    expect(agent.wanted.get(replica!.id)).toMatchObject({ spec: { on_demand: { proven: true } } });
  });

  it('a deploy that only was seen asleep has been ready', async () => {
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    await see(replica!, 'sleeping');
    await deployState(made.id, id, 'live');
    await wakes(made.id, replica!.id);
  });

  it('a new version of a sleeping app: started once beside the old, which serves until the edge has the new one', async () => {
    const made = await bench.app();
    const first = await asleep(made.id);
    const second = await deploy(made.id);
    await agent.build(second, 'server');
    const [next] = await agent.replicas(second, 1);
    expect(next).toMatchObject({ spec: { on_demand: { proven: false } } });
    await wakes(made.id, first.replica.id);
    await see(next!, 'ready');
    await deployState(made.id, second, 'live');
    await wakes(made.id, next!.id);
    await agent.until('the old one shall go', (item) => item.id === first.replica.id && item.gone);
  });

  it('a new version that never comes up: the sleeping one goes on', async () => {
    const made = await bench.app();
    const first = await asleep(made.id);
    const second = await deploy(made.id);
    await agent.build(second, 'server');
    const [bad] = await agent.replicas(second, 1);
    await agent.observe(bad!, 'failed', { reason: 'exited with code 1: no\nThe end of its log:\n  a\n  no' });
    expect(await deployState(made.id, second, 'never_booted')).toMatchObject({
      boot_error: 'exited with code 1: no\nThe end of its log:\n  a\n  no',
    });
    await wakes(made.id, first.replica.id);
    await agent.poll();
    expect(agent.wanted.get(first.replica.id)!.gone).toBe(false);
  });

  it('a clock that was set back ends no span before it began: billing would refuse that, and charge for ever', async () => {
    const made = await bench.app({ replica_count: 1 });
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!, 4_445, later());
    const span = () =>
      [...bench.billing.spans.values()].find(({ open }) => open['resource'] === `app:${made.id}`);
    await eventually('charged', async () => span());
    const [row] = await bench.sql<{ started_at: Date }>(
      "update span set started_at = now() + interval '10 minutes' where app_id = $1 returning started_at",
      [made.id],
    );
    await bench.api('DELETE', `apps/${made.id}`);
    await eventually('charged no more', async () => span()!.closed);
    expect(span()!.closed).toBe(row!.started_at.toISOString());
  });

  it('to permanent and back: the one of before serves until the other is there, and money runs only for the permanent', async () => {
    const made = await bench.app();
    const { id, replica } = await asleep(made.id);
    const open = () =>
      [...bench.billing.spans.values()].filter(
        (span) => span.open['resource'] === `app:${made.id}` && span.closed === null,
      );
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 1 });
    const both = await agent.replicas(id, 2);
    const permanent = both.find((item) => item.id !== replica.id)!;
    expect(permanent).toMatchObject({ spec: { on_demand: null } });
    await pause(200);
    await wakes(made.id, replica.id);
    await agent.ready(permanent, 4_444, later());
    await eventually(
      'the route leads to it',
      async () =>
        edge.of(made.id)?.target.replicas?.[0]?.id === permanent.id && !edge.of(made.id)!.target.wake,
    );
    await agent.until('the sleeping one shall go', (item) => item.id === replica.id && item.gone);
    await eventually('charged', async () => open().length === 1);
    await agent.removeGone();

    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 0 });
    const again = (await agent.replicas(id, 2)).find((item) => item.id !== permanent.id)!;
    expect(again).toMatchObject({ spec: { on_demand: { idle_ms: 45_000 } } });
    expect(edge.of(made.id)!.target.replicas).toHaveLength(1);
    await see(again, 'ready');
    await wakes(made.id, again.id);
    await agent.until('the permanent one shall go', (item) => item.id === permanent.id && item.gone);
    await eventually('not charged', async () => open().length === 0);
    expect((await build(made.id, id)).deploy_state).toBe('live');
  });

  it('a start that fails while it sleeps shows as failing with the end of its log; it stays where it is', async () => {
    const made = await bench.app();
    const { id, replica } = await asleep(made.id);
    const reason =
      'exited with code 3: no database; the next request starts it\nThe end of its log:\n  a\n  no database';
    await see(replica, 'sleeping', { crashes: 3, reason });
    expect(await deployState(made.id, id, 'failing')).toMatchObject({ boot_error: reason });
    await wakes(made.id, replica.id);
    await agent.poll();
    expect(agent.wanted.get(replica.id)!.gone).toBe(false);
    await see(replica, 'ready');
    expect(await deployState(made.id, id, 'live')).toMatchObject({ boot_error: null });
  });

  it('a permanent replica in a crash loop shows as failing, and live once it is ready again', async () => {
    const made = await bench.app({ replica_count: 1 });
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!, 5_555, later());
    await deployState(made.id, id, 'live');
    const reason = 'exited with code 9; it starts again in 4.0 s';
    await agent.observe(replica!, 'starting', { reason, facts: { crashes: 4 }, at: later().toISOString() });
    expect(await deployState(made.id, id, 'failing')).toMatchObject({ boot_error: reason });
    await agent.ready(replica!, 5_555, later());
    await deployState(made.id, id, 'live');
  });

  it('where nobody can wake it, it runs always and is addressed as ever', async () => {
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!, 6_666, later());
    await deployState(made.id, id, 'live');
    expect(edge.of(made.id)!.target).toEqual({
      kind: 'replicas',
      replicas: [{ id: replica!.id, host: '127.0.0.1', port: 6_666 }],
    });
    // An agent that can is started: from now on it may sleep.
    await see(replica!, 'sleeping');
    await wakes(made.id, replica!.id);
  });

  it('PATCH while the first replica starts: the one that does not fit gives way', async () => {
    const made = await bench.app();
    const id = await deploy(made.id);
    await agent.build(id, 'server');
    const [early] = await agent.replicas(id, 1);
    await bench.api('PATCH', `apps/${made.id}`, { replica_count: 1 });
    const right = await eventually('a permanent one', async () => {
      await agent.poll();
      return [...agent.wanted.values()].find(
        (item) => item.kind === 'replica' && item.spec.build_id === id && item.spec.on_demand === null,
      );
    });
    await agent.ready(right!, 7_777, later());
    await deployState(made.id, id, 'live');
    await agent.until('the early one shall go', (item) => item.id === early!.id && item.gone);
  });
});
