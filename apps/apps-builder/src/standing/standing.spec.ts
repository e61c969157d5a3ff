import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';
import { StandingService } from './standing.service.js';

describe('apps of accounts without money', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;
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

  const compare = () =>
    bench.nebo.services.get('apps-builder')!.app.get<StandingService>(StandingService).compare();
  const suspend = () => {
    const since = new Date().toISOString();
    bench.billing.standing = [{ account_id: bench.account, state: 'suspended', since }];
    return compare();
  };
  const build = async (app: string, id: string) => (await bench.api('GET', `apps/${app}/builds/${id}`)).body;
  const live = (app: string, id: string) =>
    eventually('live', async () => (await build(app, id)).deploy_state === 'live');
  const deploy = async (app: string, kind: 'server' | 'static') => {
    const answer = await bench.upload(`apps/${app}/deployments`, archive({ main: Math.random().toString() }));
    await agent.build(answer.body.id, kind);
    return answer.body.id as string;
  };
  const route = (app: string, kind: string) =>
    eventually(`route ${kind}`, async () => {
      await edge.fetch();
      return edge.of(app)?.target.kind === kind;
    });
  const spansOf = (app: string) =>
    [...bench.billing.spans.values()].filter(({ open }) => open['resource'] === `app:${app}`);

  it('replicas stop, with their charge; a static app goes on; in order again they start, with what was deployed meanwhile', async () => {
    const [server, page] = [await bench.app({ replica_count: 1 }), await bench.app()];
    const first = await deploy(server.id, 'server');
    const [replica] = await agent.replicas(first, 1);
    await agent.ready(replica!, 4_100);
    await live(server.id, first);
    await live(page.id, await deploy(page.id, 'static'));
    await eventually('charged', () => Promise.resolve(spansOf(server.id).length === 1));

    await suspend();
    await route(server.id, 'none');
    await eventually('charged no more', () => Promise.resolve(spansOf(server.id)[0]!.closed));
    await route(page.id, 'static');
    await eventually('its end wanted', async () => {
      await agent.poll();
      return [...agent.wanted.values()].some(({ id, gone }) => id === replica!.id && gone);
    });
    // A second look changes nothing; a server that is deployed now waits, a page does not.
    await compare();
    const second = await deploy(server.id, 'server');
    await live(page.id, await deploy(page.id, 'static'));
    expect((await build(server.id, second)).deploy_state).not.toBe('live');
    expect(
      [...agent.wanted.values()].filter((item) => item.kind === 'replica' && item.spec.build_id === second),
    ).toEqual([]);

    bench.billing.standing = [];
    await compare();
    const [again] = await agent.replicas(second, 1);
    await agent.ready(again!, 4_101);
    await live(server.id, second);
    await route(server.id, 'replicas');
    await eventually('charged again', () => Promise.resolve(spansOf(server.id).length === 2));
  });
});
