import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';
import { Housekeeping } from '../shared/housekeeping.js';

describe('several edges', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let quick: FakeEdge;
  let slow: FakeEdge;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  beforeEach(async () => {
    await bench.sql('delete from edge');
    quick = new FakeEdge(bench, 'edge-quick');
    slow = new FakeEdge(bench, 'edge-slow');
    quick.run();
    await slow.fetch();
    await slow.confirm();
  });
  afterEach(() => quick.stop());
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const build = async (app: string, id: string) => (await bench.api('GET', `apps/${app}/builds/${id}`)).body;
  const shows = (app: string, id: string, state: string) =>
    eventually(state, async () => {
      const found = await build(app, id);
      return found.deploy_state === state && found;
    });
  const stateOf = async (app: string) =>
    (
      await bench.sql<{ state: string; reason: string | null }>(
        "select state, reason from lifecycle where kind = 'rollout' and id = $1",
        [app],
      )
    )[0]!;
  const upload = async (app: string, main: string) =>
    (await bench.upload(`apps/${app}/deployments`, archive({ main }))).body.id as string;
  /** A static app whose new route the quick edge has and the slow one does not. */
  const halfWay = async () => {
    const app = (await bench.app()).id as string;
    const id = await upload(app, 'one');
    await agent.build(id, 'static');
    await eventually('the slow edge is waited for', async () =>
      (await stateOf(app)).reason?.startsWith('1 of 2 edges'),
    );
    return { app, id };
  };
  const past = (app: string, minutes: number) =>
    bench.sql(
      "update lifecycle set entered_at = now() - make_interval(mins => $2), run_at = now() where kind = 'rollout' and id = $1",
      [app, minutes],
    );
  const wakeUp = (app: string) =>
    bench.sql("update lifecycle set run_at = now() where kind = 'rollout' and id = $1", [app]);

  it('a deploy is live when every one serves it, and says for which it waits', async () => {
    const { app, id } = await halfWay();
    expect(await build(app, id)).toMatchObject({ deploy_state: 'rolling' });
    expect((await stateOf(app)).reason).toBe('1 of 2 edges has not confirmed the routes yet: edge-slo');
    // That it has fetched them is not that it serves them.
    await slow.fetch();
    expect(await build(app, id)).toMatchObject({ deploy_state: 'rolling' });
    await slow.confirm();
    await shows(app, id, 'live');
  });

  it('one that says goodbye is not waited for, and neither is one that fell silent', async () => {
    const first = await halfWay();
    await slow.leave();
    await shows(first.app, first.id, 'live');
    // It comes back, and dies without a word.
    await slow.fetch();
    const second = await halfWay();
    await bench.sql("update edge set seen_at = now() - interval '1 hour' where id = 'edge-slow'");
    await wakeUp(second.app);
    await shows(second.app, second.id, 'live');
  });

  it('one that is there and takes no routes is told of, passed over after a while, and counts again once it confirms', async () => {
    const first = await halfWay();
    await past(first.app, 2);
    expect((await shows(first.app, first.id, 'unverified')).boot_error).toContain(
      '1 of 2 edges has not confirmed the routes yet: edge-slo',
    );
    await past(first.app, 6);
    expect(await shows(first.app, first.id, 'live')).toMatchObject({ boot_error: null });
    // The next deploy does not wait at all.
    const next = (await bench.app()).id as string;
    const id = await upload(next, 'two');
    await agent.build(id, 'static');
    await shows(next, id, 'live');
    await slow.fetch();
    await slow.confirm();
    const last = await halfWay();
    await slow.fetch();
    await slow.confirm();
    await shows(last.app, last.id, 'live');
  });

  it('a replaced replica stays as long as one of them may send it requests', async () => {
    slow.run();
    const app = (await bench.app({ replica_count: 2 })).id as string;
    const id = await upload(app, 'server');
    await agent.build(id, 'server');
    const replicas = await agent.replicas(id, 2);
    for (const [index, replica] of replicas.entries()) await agent.ready(replica, 4_100 + index);
    await shows(app, id, 'live');
    await slow.stop();
    await bench.api('PATCH', `apps/${app}`, { replica_count: 1 });
    const retiring = () =>
      bench.sql<{ retire_at: string; gone: boolean }>(
        'select retire_at::text, gone from replica where app_id = $1 and retire_at is not null',
        [app],
      );
    const [first] = await eventually('one shall go', async () => {
      const rows = await retiring();
      return rows.length === 1 && rows;
    });
    await eventually('postponed', async () => (await retiring())[0]!.retire_at !== first!.retire_at);
    expect(await retiring()).toMatchObject([{ gone: false }]);
    await slow.fetch();
    await slow.confirm();
    await eventually(
      'it goes',
      async () => (await agent.poll(), replicas.filter((one) => agent.wanted.get(one.id)!.gone).length === 1),
    );
  });

  it('422 for what is no name; a goodbye of a stranger changes nothing; silent ones are forgotten', async () => {
    expect((await bench.internal('GET', 'routes?edge=a%20b')).status).toBe(422);
    expect((await bench.internal('POST', 'routes/applied', { version: 'x.1', edge: 7 })).status).toBe(422);
    expect((await bench.internal('DELETE', 'edges/nobody')).status).toBe(204);
    const { app, id } = await halfWay();
    await bench.sql("update edge set seen_at = now() - interval '2 days' where id = 'edge-slow'");
    await bench.nebo.services.get('apps-builder')!.app.get(Housekeeping).run();
    expect(await bench.sql("select 1 from edge_route where edge_id = 'edge-slow'")).toEqual([]);
    await wakeUp(app);
    await shows(app, id, 'live');
  });
});
