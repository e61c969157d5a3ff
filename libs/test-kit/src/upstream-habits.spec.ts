import { startUpstreamModel, type UpstreamModel } from './upstream.js';
import { type UpstreamDialect, upstreamDialects } from './upstream-habits.js';

type Json = Record<string, unknown>;

const models = {} as Record<UpstreamDialect, UpstreamModel>;
beforeAll(async () => {
  for (const dialect of upstreamDialects) models[dialect] = await startUpstreamModel({ dialect });
});
beforeEach(() => Object.values(models).forEach((model) => model.reset()));
afterAll(() => Promise.all(Object.values(models).map((model) => model.stop())));

const user = { role: 'user', content: 'hi' };
const post = (dialect: UpstreamDialect, body: Json) =>
  fetch(`${models[dialect].url}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [user], ...body }),
  });
const streamed = { stream: true, stream_options: { include_usage: true } };
async function chunks(dialect: UpstreamDialect, body: Json = {}): Promise<Json[]> {
  const text = await (await post(dialect, { ...streamed, ...body })).text();
  return [...text.matchAll(/^data: (\{.*\})\r?$/gm)].map((match) => JSON.parse(match[1]!) as Json);
}
const choiceOf = (chunk: Json) => (chunk['choices'] as Json[])[0] ?? {};
const deltaOf = (chunk: Json) => (choiceOf(chunk)['delta'] ?? {}) as Json;
const usage = {
  prompt_tokens: 10,
  completion_tokens: 4,
  prompt_tokens_details: { cached_tokens: 3 },
};

describe('a provider with the habits of a vendor', () => {
  it.each([
    ['openai', 'reasoning'],
    ['zhipu', 'reasoning_content'],
    ['moonshot', 'reasoning_content'],
    ['qwen', 'reasoning_content'],
    ['deepseek', 'reasoning_content'],
    ['mimo', 'reasoning_content'],
  ] as const)('%s reasons in %s, plain and streamed', async (dialect, field) => {
    models[dialect].script(() => ({ reasoning: ['h', 'm'], chunks: ['Hi'] }));
    const all = await chunks(dialect);
    expect(all.map((chunk) => deltaOf(chunk)[field] ?? '').join('')).toBe('hm');
    expect(all.map((chunk) => deltaOf(chunk)['content'] ?? '').join('')).toBe('Hi');
    expect(await (await post(dialect, {})).json()).toMatchObject({
      choices: [{ message: { [field]: 'hm', content: 'Hi' } }],
    });
  });

  it('minimax reasons in the text unless it is asked to split', async () => {
    models.minimax.script(() => ({ reasoning: ['hm'], chunks: ['Hi'] }));
    const text = async (body: Json) =>
      (await chunks('minimax', body)).map((chunk) => deltaOf(chunk)['content'] ?? '').join('');
    expect(await text({})).toBe('<think>\nhm\n</think>\n\nHi');
    expect(await text({ reasoning_split: true })).toBe('Hi');
    expect(await (await post('minimax', {})).json()).toMatchObject({
      choices: [{ message: { content: '<think>hm</think>\n\nHi' } }],
    });
  });

  it.each([
    ['openai', (all: Json[]) => all.at(-1)!['usage'], (all: Json[]) => all.at(-1)!['choices'], []],
    ['qwen', (all: Json[]) => all.at(-1)!['usage'], (all: Json[]) => all.at(-1)!['choices'], []],
    [
      'zhipu',
      (all: Json[]) => all.at(-1)!['usage'],
      (all: Json[]) => choiceOf(all.at(-1)!)['finish_reason'],
      'stop',
    ],
    [
      'deepseek',
      (all: Json[]) => all.at(-1)!['usage'],
      (all: Json[]) => choiceOf(all.at(-1)!)['finish_reason'],
      'stop',
    ],
    [
      'moonshot',
      (all: Json[]) => choiceOf(all.at(-1)!)['usage'],
      (all: Json[]) => all.at(-1)!['usage'],
      undefined,
    ],
  ] as const)('%s counts where that vendor does', async (dialect, counters, other, value) => {
    models[dialect].script(() => ({ usage }));
    const all = await chunks(dialect);
    expect(counters(all)).toMatchObject({ prompt_tokens: 10, completion_tokens: 4 });
    expect(other(all)).toEqual(value);
    expect(all.slice(0, -1).some((chunk) => 'usage' in chunk)).toBe(false);
    models[dialect].script(() => ({ usage: null }));
    expect(JSON.stringify(await chunks(dialect))).not.toContain('usage');
    models[dialect].script(() => ({ usage }));
    expect(JSON.stringify(await chunks(dialect, { stream_options: {} }))).not.toContain('usage');
  });

  it('minimax counts upwards in every chunk, deepseek and moonshot have own words for the cache', async () => {
    models.minimax.script(() => ({ usage, chunks: ['a', 'b'] }));
    const counted = (await chunks('minimax')).map((chunk) => (chunk['usage'] as Json)['completion_tokens']);
    expect(counted).toEqual([0, 1, 2, 4]);
    models.deepseek.script(() => ({ usage }));
    expect((await chunks('deepseek')).at(-1)!['usage']).toMatchObject({
      prompt_cache_hit_tokens: 3,
      prompt_cache_miss_tokens: 7,
    });
    models.moonshot.script(() => ({ usage }));
    expect(choiceOf((await chunks('moonshot')).at(-1)!)['usage']).toEqual({
      prompt_tokens: 10,
      completion_tokens: 4,
      cached_tokens: 3,
    });
  });

  it('frames as the vendor does: comments, CRLF, no [DONE], own fields and finish words', async () => {
    const text = async (dialect: UpstreamDialect) => (await post(dialect, streamed)).text();
    expect(await text('deepseek')).toContain(': keep-alive\n\ndata: ');
    expect(await text('mimo')).toMatch(/\}\r\n\r\ndata: \[DONE\]\r\n\r\n$/);
    expect(await text('minimax')).not.toContain('[DONE]');
    expect(await text('minimax')).toContain('"base_resp":{"status_code":0');
    expect(await text('openai')).toContain('"system_fingerprint":null');
    models.zhipu.next({ finishReason: 'content_filter' });
    expect(await text('zhipu')).toContain('"finish_reason":"sensitive"');
  });

  it('sends tool calls as the vendor does', async () => {
    const toolCalls = ['a', 'b'].map((id) => ({
      id,
      type: 'function',
      function: { name: `f_${id}`, arguments: '{"x":1}' },
    }));
    const pieces = async (dialect: UpstreamDialect, body: Json = {}) => {
      models[dialect].next({ toolCalls });
      return (await chunks(dialect, body)).flatMap((chunk) => (deltaOf(chunk)['tool_calls'] ?? []) as Json[]);
    };
    const order = (all: Json[]) => all.map(({ index }) => index);
    expect(order(await pieces('openai'))).toEqual([0, 1, 0, 1, 0, 1]);
    expect(order(await pieces('moonshot'))).toEqual([0, 1, 0, 1, 0, 1]);
    expect(order(await pieces('deepseek'))).toEqual([0, 0, 0, 1, 1, 1]);
    expect((await pieces('qwen'))[1]).toMatchObject({ id: '', function: { name: '' } });
    expect(order(await pieces('zhipu'))).toEqual([0, 1]);
    expect(order(await pieces('zhipu', { tool_stream: true }))).toEqual([0, 0, 0, 1, 1, 1]);
    for (const dialect of upstreamDialects) {
      const text = (await pieces(dialect))
        .filter(({ index }) => index === 1)
        .map((piece) => (piece['function'] as Json)['arguments'])
        .join('');
      expect(text).toBe('{"x":1}');
    }
  });

  const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };
  const history = (more: Json) => ({
    messages: [
      user,
      { role: 'assistant', content: null, tool_calls: [call], ...more },
      { role: 'tool', tool_call_id: 'c', content: 'x' },
    ],
  });
  const tools = [{ type: 'function', function: { name: 'f' } }];
  const image = { type: 'image_url', image_url: { url: 'https://x/y.png' } };

  it.each<[UpstreamDialect, string, Json]>([
    ['openai', 'an empty list of tools', { tools: [] }],
    ['openai', 'a choice without tools', { tool_choice: 'auto' }],
    ['openai', 'the role developer', { messages: [{ role: 'developer', content: 'x' }] }],
    [
      'openai',
      'calls without results',
      { messages: [user, { role: 'assistant', tool_calls: [call] }, user] },
    ],
    [
      'openai',
      'results without calls',
      { messages: [user, { role: 'tool', tool_call_id: 'z', content: 'x' }] },
    ],
    [
      'openai',
      'pictures in tool messages',
      {
        messages: [
          user,
          { role: 'assistant', tool_calls: [call] },
          { role: 'tool', tool_call_id: 'c', content: [image] },
        ],
      },
    ],
    ['zhipu', 'another name of the ceiling', { max_completion_tokens: 5 }],
    ['zhipu', 'a forced tool', { tools, tool_choice: 'required' }],
    ['moonshot', 'sampling values', { temperature: 0.5 }],
    ['moonshot', 'links to pictures', { messages: [{ role: 'user', content: [image] }] }],
    [
      'moonshot',
      'tool turns without reasoning, off or on',
      { ...history({}), thinking: { type: 'disabled' } },
    ],
    ['qwen', 'a late system message', { messages: [user, { role: 'system', content: 'x' }] }],
    ['moonshot', 'a tool by name', { tools, tool_choice: tools[0], thinking: { type: 'disabled' } }],
    ['qwen', 'a forced tool while it thinks', { tools, tool_choice: 'required', enable_thinking: true }],
    ['deepseek', 'a forced tool while it thinks', { tools, tool_choice: tools[0] }],
    ['deepseek', 'tool turns without reasoning', history({})],
    ['deepseek', 'tool turns with empty reasoning', history({ reasoning_content: '' })],
    [
      'deepseek',
      'answers without reasoning beside tools',
      { tools, messages: [user, { role: 'assistant', content: 'x' }, user] },
    ],
    ['mimo', 'tool turns without reasoning', history({})],
  ])('%s refuses %s with 400, before the script is asked', async (dialect, _what, body) => {
    models[dialect].next({ chunks: ['not yet'] });
    const refused = await post(dialect, body);
    expect(refused.status).toBe(400);
    expect(JSON.stringify(await refused.json())).toContain('message');
    expect(await (await post(dialect, {})).text()).toContain('not yet');
  });

  it('minimax refuses with status 200 and base_resp', async () => {
    const refused = await post('minimax', { tools, tool_choice: 'auto' });
    expect(refused.status).toBe(200);
    expect(await refused.json()).toMatchObject({ base_resp: { status_code: 2013 } });
  });

  it('takes tool turns with their reasoning, or with thinking off', async () => {
    for (const dialect of upstreamDialects)
      expect((await post(dialect, history({ reasoning_content: ' ' }))).status).toBe(200);
    for (const dialect of ['deepseek', 'mimo'] as const)
      expect((await post(dialect, { ...history({}), thinking: { type: 'disabled' } })).status).toBe(200);
    const forced = { tools, tool_choice: 'required' };
    expect((await post('moonshot', forced)).status).toBe(200);
    expect((await post('qwen', { ...forced, enable_thinking: false })).status).toBe(200);
    expect((await post('deepseek', { ...forced, thinking: { type: 'disabled' } })).status).toBe(200);
  });
});
