import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../test/fake-agent.js';
import { Bench } from '../../test/harness.js';

/** What sources, images and programs of users may hold, and PostgreSQL does not take. */
const words = ['a\u0000b', 'a\ud800b', 'a\udc00', '\u0000'];

describe('words of strangers in what an agent says', () => {
  let bench: Bench;
  let agent: FakeAgent;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it.each(words)('%j does not keep what stands behind it from being taken', async (word) => {
    const builds = [await bench.appWithBuild(), await bench.appWithBuild()].map(({ build }) => build.id);
    await agent.poll();
    const [first, second] = builds.map((id) => agent.wanted.get(id)!);
    const artifact = await agent.put(Buffer.from('x'));
    const routing = { format: 1, redirects: [{ [word]: [word] }], headers: [], rewrites: [], cors: [] };
    const items = [first!, second!].map(({ kind, id, generation }, index) => ({
      ...{ kind, id, generation, state: 'error', at: new Date().toISOString() },
      ...{ reason: word, facts: index === 0 ? { artifact, start_command: word, routing } : {} },
    }));
    expect(await agent.call('POST', 'observed', { items })).toMatchObject({
      status: 200,
      body: { taken: 2 },
    });
  });

  it.each(words)('%j in a line does not keep the log from being taken', async (word) => {
    const { build } = await bench.appWithBuild();
    const at = new Date().toISOString();
    const lines = [
      { seq: 0, at, line: word },
      { seq: 1, at, line: `${'😀'.repeat(100_001)}` },
      { seq: 2, at, line: `a${'😀'.repeat(100_001)}` },
    ];
    expect((await agent.call('POST', `log/${build.id}`, { lines, done: true })).status).toBe(200);
  });
});
