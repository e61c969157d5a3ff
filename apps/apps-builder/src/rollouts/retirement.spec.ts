import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';

describe('replicas that are let go', () => {
  let bench: Bench;

  beforeAll(async () => (bench = await Bench.start()));
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('fewer replicas while no edge answers: the surplus one stays until an edge sends elsewhere', async () => {
    const agent = new FakeAgent(bench);
    const edge = new FakeEdge(bench);
    edge.run();
    const app = await bench.app({ replica_count: 2 });
    const { body } = await bench.upload(`apps/${app.id}/deployments`, archive({ main: 'server' }));
    await agent.build(body.id, 'server');
    const replicas = await agent.replicas(body.id, 2);
    for (const [index, replica] of replicas.entries()) await agent.ready(replica, 4_000 + index);
    await eventually(
      'live',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${body.id}`)).body.deploy_state === 'live',
    );
    await edge.stop();

    await bench.api('PATCH', `apps/${app.id}`, { replica_count: 1 });
    const retiring = () =>
      bench.sql('select retire_at::text, gone from replica where app_id = $1 and retire_at is not null', [
        app.id,
      ]);
    const [first] = await eventually('one shall go', async () => {
      const rows = await retiring();
      return rows.length === 1 && rows;
    });
    // Its time has come, and nobody has let go of it.
    await eventually('postponed', async () => (await retiring())[0]!.retire_at !== first!.retire_at);
    expect(await retiring()).toMatchObject([{ gone: false }]);
    // One look is not enough: a route that is being written at that moment is for the next one.
    edge.run();
    await eventually(
      'it goes',
      async () => (await agent.poll(), replicas.filter(({ id }) => agent.wanted.get(id)!.gone).length === 1),
    );
    await edge.stop();
  });
});
