import { sharedPostgres, startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import type { Route } from '../catalogue/catalogue.js';
import { newCaller, type Router, startRouter } from '../../test/harness.js';
import { pickOrder } from './pick.js';

const messages = [{ role: 'user', content: 'hi' }];

describe('several upstreams of a model', () => {
  let router: Router;
  let second: UpstreamModel;
  beforeAll(async () => {
    second = await startUpstreamModel();
    router = await startRouter({
      config: `
providers:
  one: { base_url: "{url}", dialect: openai }
  two: { base_url: "${second.url}", dialect: deepseek }
  mini: { base_url: "{url}", dialect: minimax }
models:
  deepseek-v4-pro: { upstreams: [{ provider: one, weight: 1000000000 }, { provider: two, model: second }] }
  minimax-m3: { upstreams: [{ provider: mini }] }
`,
    });
  });
  beforeEach(() => {
    router.upstream.reset();
    second.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await second?.stop();
    await (await sharedPostgres()).stop();
  });
  const ask = (body: Record<string, unknown> = {}) =>
    router.chat({ model: 'deepseek-v4-pro', messages, ...body });

  it.each([
    ['has no connection', { refuse: true }],
    ['fails', { status: 500 }],
    ['has no money for the operator', { status: 402 }],
    ['is busy', { status: 429 }],
    ['breaks off before its first event', { raw: [] }],
    ['begins with an error', { raw: ['data: {"error":{"message":"x"}}\n\n'] }],
    ['has an error in words of its own', { body: { code: 500, msg: 'no such path', success: false } }],
    ['sends such an error as its only event', { raw: ['data: {"code":500,"msg":"x"}\n\n'] }],
    [
      'sends no stream',
      { handle: (_: unknown, response: { end(text: string): void }) => response.end('<html>') },
    ],
  ])('the next one answers when the first %s: one hold, one charge', async (_what, answer) => {
    router.upstream.next(answer as never);
    const response = await ask();
    expect(response.status).toBe(200);
    expect(router.upstream.calls()).toBe(1);
    expect(second.requests[0]!.body).toMatchObject({ model: 'second', thinking: { type: 'enabled' } });
    expect(router.billing.holds.size).toBe(1);
    expect(router.billing.inState('captured')).toHaveLength(1);
  });

  it('nothing is repeated after the first event, nor what the vendor refuses about the request', async () => {
    router.upstream.next({ cutAfter: 2, chunkDelay: 20 });
    expect(await (await ask({ stream: true })).text()).toContain('upstream_broken');
    router.upstream.next({ status: 400, body: { error: { message: 'bad schema' } } });
    expect((await ask()).status).toBe(400);
    expect(second.calls()).toBe(0);
  });

  it('an only upstream gets one more try when its connection fails, and none when it answers', async () => {
    router.upstream.next({ refuse: true });
    expect((await ask({ model: 'minimax-m3' })).status).toBe(200);
    expect(router.upstream.calls()).toBe(2);
    router.upstream.next({ status: 500 });
    expect((await ask({ model: 'minimax-m3' })).status).toBe(502);
    expect(router.upstream.calls()).toBe(3);
  });

  it('errors that MiniMax sends with 200 are errors', async () => {
    router.upstream.next({ body: { base_resp: { status_code: 1008, status_msg: 'insufficient balance' } } });
    const answer = await ask({ model: 'minimax-m3' });
    expect(answer.status).toBe(502);
    expect(await answer.text()).not.toContain('insufficient');
  });

  it('puts reasoning back that a client left out of its history, for the same account only', async () => {
    const call = { id: 'call_7', type: 'function', function: { name: 'f', arguments: '{}' } };
    const tools = [{ type: 'function', function: { name: 'f' } }];
    router.upstream.next({ reasoning: ['because'], toolCalls: [call] });
    const first = (await (await ask({ tools })).json()) as {
      choices: [{ message: Record<string, unknown> }];
    };
    const { reasoning_content: _, ...bare } = first.choices[0].message;
    const history = [...messages, bare, { role: 'tool', tool_call_id: 'call_7', content: 'done' }];
    await ask({ tools, messages: history });
    const sent = () => (router.upstream.requests.at(-1)!.body!['messages'] as Record<string, unknown>[])[1];
    expect(sent()).toMatchObject({ reasoning_content: 'because', tool_calls: [call] });
    router.identity = newCaller(router.billing);
    await ask({ tools, messages: history });
    expect(sent()).not.toHaveProperty('reasoning_content');
  });

  it('puts back what belongs to each conversation, where the vendor counts its calls anew', async () => {
    const tools = [{ type: 'function', function: { name: 'read' } }];
    const bare = async (question: string, path: string, thought: string) => {
      const asked = [{ role: 'user', content: question }];
      const call = {
        id: 'read:0',
        type: 'function',
        function: { name: 'read', arguments: `{"path":"${path}"}` },
      };
      router.upstream.next({ reasoning: [thought], toolCalls: [call] });
      const { choices } = (await (await ask({ tools, messages: asked })).json()) as {
        choices: [{ message: Record<string, unknown> }];
      };
      const { reasoning_content: _, ...message } = choices[0].message;
      return [...asked, message, { role: 'tool', tool_call_id: 'read:0', content: 'done' }];
    };
    const one = await bare('Fix it.', 'a.ts', 'The user wants a.ts fixed.');
    await bare('Buy milk.', 'list.txt', 'The user wants milk.');
    await ask({ tools, messages: one });
    const sent = router.upstream.requests.at(-1)!.body!['messages'] as Record<string, unknown>[];
    expect(sent[1]).toMatchObject({ reasoning_content: 'The user wants a.ts fixed.' });
  });

  it('none hides reasoning that the vendor shows all the same, and bills it', async () => {
    router.upstream.next({
      reasoning: ['secret'],
      usage: { prompt_tokens: 1, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 1 } },
    });
    const answer = await (await ask({ reasoning_effort: 'none' })).json();
    expect(JSON.stringify(answer)).not.toContain('secret');
    expect(answer).toMatchObject({
      usage: { completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 1 } },
    });
  });
});

describe('the order of upstreams', () => {
  const routes = [1, 3].map((weight) => ({
    vendorModel: String(weight),
    weight,
    priority: 0,
  })) as Route[];

  it('follows the weights and keeps every route once', () => {
    const first = (random: number) => pickOrder(routes, () => random).map((route) => route.vendorModel);
    expect(first(0)).toEqual(['1', '3']);
    expect(first(0.24)).toEqual(['1', '3']);
    expect(first(0.25)).toEqual(['3', '1']);
    expect(first(0.999999)).toEqual(['3', '1']);
  });

  it('goes by priority first, whatever the weights', () => {
    const mixed = [
      ...routes.map((route) => ({ ...route, priority: 2 })),
      { ...routes[0]!, vendorModel: 'first', priority: 1 },
    ];
    expect(pickOrder(mixed, () => 0.99).map((route) => route.vendorModel)).toEqual(['first', '3', '1']);
    expect(pickOrder(mixed, () => 0).map((route) => route.vendorModel)).toEqual(['first', '1', '3']);
  });
});
