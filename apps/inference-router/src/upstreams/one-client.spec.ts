import { startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import { type Outbound, startOutbound } from '../../test/outbound.js';

/** What one client's requests make of an upstream must not close a model for all others. */
describe('one client', () => {
  let upstream: UpstreamModel;
  let outbound: Outbound;
  beforeAll(async () => void (upstream = await startUpstreamModel()));
  beforeEach(() => {
    upstream.reset();
    outbound = startOutbound(`
providers:
  deep: { base_url: "${upstream.url}", dialect: deepseek }
  mini: { base_url: "${upstream.url}", dialect: minimax }
models:
  deepseek-v4-pro: { upstreams: [{ provider: deep }] }
  minimax-m3: { upstreams: [{ provider: mini }] }
`);
  });
  afterEach(() => outbound.stop());
  afterAll(() => upstream?.stop());

  const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const begin = event({ choices: [{ index: 0, delta: { content: 'Some' } }] });

  it.each([
    [
      'content that the vendor refuses with 403',
      'deepseek-v4-pro',
      { status: 403, body: { error: { message: 'this content is not allowed' } } },
    ],
    ['a bad request', 'deepseek-v4-pro', { status: 400, body: { error: { message: 'no' } } }],
    ['too much of it', 'deepseek-v4-pro', { status: 413 }],
    ['a request that makes no sense', 'deepseek-v4-pro', { status: 422 }],
    [
      'content that is refused inside a successful answer, at its beginning',
      'minimax-m3',
      { raw: [event({ base_resp: { status_code: 1026, status_msg: 'input sensitive' } })] },
    ],
    [
      'an answer that is refused in its middle',
      'minimax-m3',
      {
        raw: [begin, event({ base_resp: { status_code: 1027, status_msg: 'output sensitive' } })],
        chunkDelay: 15,
      },
    ],
    [
      'an answer that ends in its middle with an error about the request',
      'deepseek-v4-pro',
      { raw: [begin, event({ error: { code: 400, message: 'the context is too long' } })], chunkDelay: 15 },
    ],
  ])('closes nothing with %s, however often', async (_what, model, answer) => {
    upstream.script(() => answer);
    for (let index = 0; index < 30; index += 1)
      await expect(outbound.ask(outbound.order(model))).rejects.toMatchObject({ trouble: 'refused' });
    upstream.reset();
    expect((await outbound.ask(outbound.order(model))).content).toContain('Hello');
  });

  it('closes a route for a minute at most, whatever the vendor asks for after one request', async () => {
    upstream.next({ status: 429, headers: { 'retry-after': '3600' } });
    const refused = (): Promise<unknown> =>
      outbound.ask(outbound.order('deepseek-v4-pro')).catch((error) => error);
    // Who asked is told the vendor's word.
    expect(await refused()).toMatchObject({ status: 429, retryAfter: 3_600 });
    const others = (await refused()) as { trouble: string; retryAfter: number };
    expect(others.trouble).toBe('closed');
    expect(others.retryAfter).toBeLessThanOrEqual(60);
  });
});
