import { compileRouting } from '@nebo/routing';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';

describe('rules of a routing file on their way to the edge', () => {
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

  const deploy = async (appId: string, routing: unknown) => {
    const { body } = await bench.upload(
      `apps/${appId}/deployments`,
      archive({ main: Math.random().toString() }),
    );
    await agent.build(body.id, 'static', { routing });
    return eventually('the build ends', async () => {
      const build = (await bench.api('GET', `apps/${appId}/builds/${body.id}`)).body;
      return (build.deploy_state === 'live' || build.status === 'error') && build;
    });
  };
  const routing = async (appId: string) => {
    const { body } = await bench.internal('GET', 'routes');
    return body.routes.find((route: { app_id: string }) => route.app_id === appId).routing;
  };

  it('go along with the route of their build, and away with it', async () => {
    const { id } = await bench.app();
    const { routing: rules } = compileRouting(
      'nebo.json',
      '{"redirects":[{"source":"/a/:b","destination":"/c/:b","has":[{"type":"cookie","key":"x","value":"(?<y>1)"}]}]}',
    );
    expect((await deploy(id, rules)).deploy_state).toBe('live');
    expect(await routing(id)).toEqual(rules);
    expect((await deploy(id, null)).deploy_state).toBe('live');
    expect(await routing(id)).toBeUndefined();
  });

  it.each([
    [{ format: 2 }],
    ['rules'],
    [{ format: 1, redirects: [{}], headers: [], rewrites: [], cors: [] }],
  ])('%j is none that an edge could apply: the build has failed', async (rules) => {
    const { id } = await bench.app();
    expect(await deploy(id, rules)).toMatchObject({
      status: 'error',
      error: 'the region reported rules of the routing file that cannot be read',
    });
  });
});
