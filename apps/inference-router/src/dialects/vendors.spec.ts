import { startUpstreamModel, upstreamDialects, type UpstreamModel } from '@nebo/test-kit';
import { efforts } from '../catalogue/model.js';
import type { OrderMessage, Tool } from '../completions/order.js';
import { type Outbound, startOutbound } from '../../test/outbound.js';

const models: Record<string, string> = {
  openai: 'deepseek-v4.1-flash',
  zhipu: 'glm-5v-turbo',
  moonshot: 'kimi-k3',
  qwen: 'qwen3.8-max',
  deepseek: 'deepseek-v4.1-flash',
  mimo: 'mimo-v2.6-pro',
  minimax: 'minimax-m3',
};
const tools: Tool[] = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];
const png = `data:image/png;base64,${Buffer.from('\x89PNG\r\n\x1a\n and more', 'latin1').toString('base64')}`;
const call = (id: string) => ({ id, type: 'function' as const, function: { name: 'f', arguments: '{}' } });
/** What agents send: a late system message, two calls without their reasoning, a picture as a result. */
const history: OrderMessage[] = [
  { role: 'system', content: 'a' },
  { role: 'user', content: 'x' },
  { role: 'system', content: 'b' },
  { role: 'assistant', content: null, tool_calls: [call('functions.f:0'), call('functions.f:1')] },
  {
    role: 'tool',
    tool_call_id: 'functions.f:0',
    content: [
      { type: 'text', text: 'seen' },
      { type: 'image_url', image_url: { url: png } },
    ],
  },
  { role: 'tool', tool_call_id: 'functions.f:1', content: 'y' },
  { role: 'user', content: 'z' },
];

/** Each dialect against a provider that refuses what its vendor refuses. */
describe.each(upstreamDialects)('%s', (dialect) => {
  let vendor: UpstreamModel;
  let outbound: Outbound;
  const model = models[dialect]!;
  beforeAll(async () => {
    vendor = await startUpstreamModel({ dialect });
    outbound = startOutbound(
      `providers: { p: { base_url: "${vendor.url}", dialect: ${dialect} } }\nmodels: { ${model}: { upstreams: [{ provider: p }] } }\n`,
    );
  });
  beforeEach(() => vendor.reset());
  afterAll(async () => {
    await outbound?.stop();
    await vendor?.stop();
  });

  it.each([undefined, ...efforts])('takes what agents send, with effort %s', async (effort) => {
    vendor.next({ reasoning: ['hm'], chunks: ['Hi'], usage: { prompt_tokens: 10, completion_tokens: 4 } });
    const order = outbound.order(model, {
      messages: history,
      tools,
      toolChoice: 'auto',
      effort,
      settings: { temperature: 0.5, seed: 1, parallel_tool_calls: true, logit_bias: {} },
    });
    expect(await outbound.ask(order)).toMatchObject({
      content: 'Hi',
      reasoning: effort === 'none' ? '' : 'hm',
      finish: 'stop',
      counters: { input: 10, output: 4 },
    });
  });

  it('takes earlier turns of a client that brings back the reasoning of calls only', async () => {
    const earlier: OrderMessage[] = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: null, tool_calls: [call('f:0')], reasoning_content: 'hm' },
      { role: 'tool', tool_call_id: 'f:0', content: 'y' },
      { role: 'assistant', content: 'z' },
      { role: 'user', content: 'and then?' },
    ];
    vendor.next({ reasoning: ['hm'], chunks: ['Hi'] });
    expect(await outbound.ask(outbound.order(model, { messages: earlier, tools }))).toMatchObject({
      content: 'Hi',
      reasoning: 'hm',
    });
  });

  it.each(['none', 'required', { type: 'function', function: { name: 'f' } }])(
    'takes the choice %j',
    async (toolChoice) => {
      expect((await outbound.ask(outbound.order(model, { tools, toolChoice }))).finish).toBe('stop');
    },
  );

  it('its calls come out whole, in order, under their ids', async () => {
    const toolCalls = ['functions.f:0', 'functions.f:1'].map((id) => ({
      id,
      type: 'function',
      function: { name: 'f', arguments: `{"id":"${id}","text":"ä🙂"}` },
    }));
    vendor.next({ reasoning: ['hm'], toolCalls });
    const answer = await outbound.ask(outbound.order(model, { tools }));
    expect(answer.calls).toEqual(
      toolCalls.map(({ id, function: { name, arguments: args } }) => ({ id, name, arguments: args })),
    );
    expect(answer).toMatchObject({ reasoning: 'hm', content: '', finish: 'tool_calls' });
  });

  it('counters: cached ones, none at all, and none that a cut stream had not sent', async () => {
    const usage = {
      prompt_tokens: 100,
      completion_tokens: 9,
      prompt_tokens_details: { cached_tokens: 40 },
      completion_tokens_details: { reasoning_tokens: 5 },
    };
    vendor.next({ usage });
    expect((await outbound.ask(outbound.order(model))).counters).toEqual({
      input: 100,
      cached: 40,
      output: 9,
      reasoning: 5,
    });
    vendor.next({ usage: null });
    expect((await outbound.ask(outbound.order(model))).counters).toBeNull();
    vendor.next({ usage, cutAfter: 2 });
    await expect(outbound.ask(outbound.order(model))).rejects.toMatchObject({ trouble: 'broken' });
  });
});
