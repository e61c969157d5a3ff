import type { Route } from '../catalogue/catalogue.js';
import { type Effort, efforts } from '../catalogue/model.js';
import { builtInModels } from '../catalogue/models.js';
import type { Order, OrderMessage } from '../completions/order.js';
import { inputBound } from '../completions/input-bound.js';
import { readCounters } from './counters.js';
import { dialects } from './registry.js';
import { vendorRequest } from './vendor-request.js';

/** The vendor's own host of each built-in model. */
const homes: Record<string, string> = {
  zhipu: 'zhipu',
  moonshot: 'moonshot',
  alibaba: 'qwen',
  deepseek: 'deepseek',
  xiaomi: 'mimo',
  minimax: 'minimax',
};

function request(
  id: string,
  effort: Effort | undefined,
  more: Partial<Order> = {},
  reasoning?: Route['reasoning'],
): Record<string, unknown> {
  const model = builtInModels.find((one) => one.id === id)!;
  const dialect = dialects[homes[model.ownedBy]!]!;
  const route: Route = {
    provider: { name: 'p', baseUrl: 'http://x', apiKey: null, dialect },
    vendorModel: 'v',
    weight: 1,
    priority: 0,
    dialect,
    ...(reasoning ? { reasoning } : {}),
  };
  const order: Order = {
    format: 'chat',
    offer: { model, routes: [route], simulated: false },
    messages: [{ role: 'user', content: 'x' }],
    tools: [],
    toolChoice: undefined,
    settings: {},
    effort,
    ceiling: 4_096,
    stream: false,
    ...more,
  };
  return vendorRequest(order, route);
}

const switchFields = (body: Record<string, unknown>) =>
  Object.fromEntries(
    ['thinking', 'reasoning_effort', 'enable_thinking', 'thinking_budget']
      .filter((name) => name in body)
      .map((name) => [name, body[name]]),
  );

describe('switching reasoning', () => {
  const disabled = { thinking: { type: 'disabled' } };
  const enabled = { thinking: { type: 'enabled' } };
  const glm = { thinking: { type: 'enabled', clear_thinking: false } };

  it.each<[string, Effort | undefined, object]>([
    // Told in every request, since the spec states these defaults.
    ['deepseek-v4-pro', undefined, enabled],
    ['deepseek-v4.1-flash', undefined, enabled],
    ['glm-5.3', undefined, glm],
    ['qwen3.8-max', undefined, { enable_thinking: true, thinking_budget: 4_095 }],
    ['glm-5.2', undefined, disabled],
    ['glm-5.2', 'high', disabled],
    ['qwen3-coder-next', undefined, {}],
    // Left to the vendor.
    ['kimi-k3', undefined, {}],
    ['minimax-m3', undefined, {}],
    // Off.
    ['deepseek-v4-pro', 'none', disabled],
    ['glm-5v-turbo', 'none', disabled],
    ['kimi-k3', 'none', disabled],
    ['mimo-v2.6-pro', 'none', disabled],
    ['mimo-v2.6-flash', 'none', disabled],
    ['minimax-m3', 'none', disabled],
    // Levels.
    ['deepseek-v4-pro', 'minimal', { ...enabled, reasoning_effort: 'low' }],
    ['deepseek-v4-pro', 'xhigh', { ...enabled, reasoning_effort: 'max' }],
    ['glm-5.3', 'low', { ...glm, reasoning_effort: 'low' }],
    ['glm-5.3', 'max', { ...glm, reasoning_effort: 'max' }],
    ['glm-5v-turbo', 'minimal', { ...glm, reasoning_effort: 'minimal' }],
    ['glm-5v-turbo', 'max', { ...glm, reasoning_effort: 'high' }],
    ['kimi-k3', 'low', { reasoning_effort: 'low' }],
    ['kimi-k3', 'xhigh', { reasoning_effort: 'max' }],
    ['mimo-v2.6-pro', 'low', enabled],
    ['minimax-m3', 'high', { thinking: { type: 'adaptive' } }],
    ['qwen3.8-max', 'low', { enable_thinking: true, thinking_budget: 2_048 }],
    ['qwen3.8-max', 'max', { enable_thinking: true, thinking_budget: 4_095 }],
  ])('%s with %s', (id, effort, fields) => {
    expect(switchFields(request(id, effort))).toEqual(fields);
  });

  it('no vendor ever sees the client\'s "none" as a word, and every level is known everywhere', () => {
    for (const model of builtInModels) {
      for (const effort of efforts) expect(JSON.stringify(request(model.id, effort))).not.toContain('"none"');
    }
  });

  it('an upstream may have its own switches', () => {
    const own = {
      off: { chat_template_kwargs: { thinking: false } },
      levels: { low: { reasoning: { effort: 'low' } } },
    };
    expect(request('kimi-k3', 'none', {}, own)).toMatchObject(own.off);
    expect(request('kimi-k3', 'low', {}, own)).toMatchObject(own.levels.low);
  });
});

describe('a JSON schema for the answer', () => {
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
  const settings = {
    response_format: { type: 'json_schema', json_schema: { name: 'place', schema, strict: true } },
    temperature: 0,
  };
  const messages: OrderMessage[] = [
    { role: 'system', content: 's' },
    { role: 'user', content: 'x' },
  ];

  it.each(['deepseek-v4-pro', 'glm-5.3'])('is told to %s, whose vendor knows none', (id) => {
    const body = request(id, undefined, { messages, settings });
    expect(body).toMatchObject({ response_format: { type: 'json_object' }, temperature: 0 });
    expect(body['messages']).toEqual([
      messages[0],
      { role: 'system', content: expect.stringMatching(/JSON.*\n\{"type":"object","properties":\{"city"/) },
      messages[1],
    ]);
    const order = { messages, tools: [], settings };
    const model = builtInModels.find((one) => one.id === id)!;
    const told = { ...order, messages: body['messages'] as OrderMessage[], settings: {} };
    // What is added is a part of what was held.
    expect(inputBound(told, model)).toBeLessThanOrEqual(inputBound(order, model) + 64);
  });

  it('goes to other vendors as it is, and so does what holds no schema', () => {
    expect(request('kimi-k3', undefined, { messages, settings })).toMatchObject({
      messages,
      response_format: settings.response_format,
    });
    for (const format of [{ type: 'json_object' }, { type: 'text' }, { type: 'json_schema' }, 'json', null]) {
      const body = request('deepseek-v4-pro', undefined, { messages, settings: { response_format: format } });
      expect(body).toMatchObject({ messages, response_format: format });
    }
  });
});

describe("the vendor's request", () => {
  const settings = { temperature: 1, top_p: 0.9, seed: 1, parallel_tool_calls: true, stop: ['x'] };
  const tools = [{ type: 'function' as const, function: { name: 'f', parameters: { type: 'object' } } }];

  it("is streamed with counters, under the vendor's name of the ceiling, without what the vendor refuses", () => {
    expect(request('glm-5.3', undefined, { settings })).toMatchObject({
      model: 'v',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 4_096,
      temperature: 1,
    });
    expect(request('glm-5.3', undefined, { settings })).not.toHaveProperty('parallel_tool_calls');
    const kimi = request('kimi-k3', undefined, { settings });
    expect(kimi).toMatchObject({ max_completion_tokens: 4_096, stop: ['x'] });
    expect(kimi).not.toHaveProperty('temperature');
    expect(kimi).not.toHaveProperty('max_tokens');
    expect(request('minimax-m3', undefined)).toMatchObject({ reasoning_split: true });
  });

  it('has tools only where there are some, and a choice that the vendor knows', () => {
    expect(request('kimi-k3', undefined, { toolChoice: 'auto' })).not.toHaveProperty('tool_choice');
    expect(request('kimi-k3', undefined, { tools, toolChoice: 'required' })).toMatchObject({
      tools,
      tool_choice: 'required',
    });
    expect(request('glm-5.3', undefined, { tools, toolChoice: 'auto' })).toMatchObject({
      tools,
      tool_choice: 'auto',
      tool_stream: true,
    });
    expect(request('glm-5.3', undefined, { tools, toolChoice: 'required' })).not.toHaveProperty(
      'tool_choice',
    );
    expect(request('glm-5.3', undefined, { tools, toolChoice: 'none' })).not.toHaveProperty('tools');
    expect(request('minimax-m3', undefined, { tools, toolChoice: 'auto' })).not.toHaveProperty('tool_choice');
  });

  it('has reasoning in the answers of earlier turns too, where the vendor wants that beside tools', () => {
    const call = { id: 'a', type: 'function' as const, function: { name: 'f', arguments: '{}' } };
    const answer: OrderMessage = { role: 'assistant', content: 'z' };
    const turn: OrderMessage[] = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: null, tool_calls: [call], reasoning_content: 'hm' },
      { role: 'tool', content: 'y', tool_call_id: 'a' },
    ];
    const messages = [...turn, answer, { role: 'user' as const, content: 'and then?' }];
    const sent = (id: string, effort: Effort | undefined, history: OrderMessage[], own = tools) => {
      const body = request(id, effort, { messages: history, tools: own });
      return [switchFields(body), (body['messages'] as OrderMessage[]).map((one) => one.reasoning_content)];
    };
    const enabled = { thinking: { type: 'enabled' } };
    const none = undefined;
    expect(sent('deepseek-v4-pro', none, messages)).toEqual([enabled, [none, 'hm', none, ' ', none]]);
    expect(sent('deepseek-v4-pro', none, messages, [])).toEqual([enabled, [none, 'hm', none, ' ', none]]);
    const plain = [turn[0]!, answer, turn[0]!];
    expect(sent('deepseek-v4-pro', none, plain)).toEqual([enabled, [none, ' ', none]]);
    // Nothing is wanted without tools, without reasoning, and by others.
    expect(sent('deepseek-v4-pro', none, plain, [])[1]).toEqual([none, none, none]);
    expect(sent('deepseek-v4-pro', 'none', messages)[1]).toEqual([none, 'hm', none, none, none]);
    for (const id of ['kimi-k3', 'mimo-v2.6-pro', 'glm-5.3'])
      expect(sent(id, none, messages)[1]).toEqual([none, 'hm', none, none, none]);
    const own = [...turn, { ...answer, reasoning_content: 'so' }];
    expect(request('deepseek-v4-pro', none, { messages: own, tools })['messages']).toBe(own);
  });

  it('forces a call only where the vendor takes that of a model that reasons', () => {
    const two = [...tools, { type: 'function' as const, function: { name: 'g' } }];
    const named = { type: 'function', function: { name: 'g' } };
    const sent = (id: string, effort: Effort | undefined, toolChoice: unknown) => {
      const body = request(id, effort, { tools: two, toolChoice });
      const names = (body['tools'] as typeof two).map((tool) => tool.function.name).join('');
      return [names, body['tool_choice'], switchFields(body)];
    };
    const disabled = { thinking: { type: 'disabled' } };
    const enabled = { thinking: { type: 'enabled' } };
    for (const choice of ['required', named]) {
      // Nothing was said about reasoning, so the choice counts; what was said counts before it.
      expect(sent('deepseek-v4-pro', undefined, choice)).toEqual(['fg', choice, disabled]);
      expect(sent('deepseek-v4-pro', 'none', choice)).toEqual(['fg', choice, disabled]);
      expect(sent('deepseek-v4-pro', 'high', choice)).toEqual([
        'fg',
        'auto',
        { ...enabled, reasoning_effort: 'high' },
      ]);
      // It cannot be switched off.
      expect(sent('qwen3.8-max', undefined, choice)[1]).toBe('auto');
      expect(sent('qwen3-coder-next', undefined, choice)).toEqual(['fg', choice, {}]);
    }
    expect(sent('kimi-k3', undefined, 'required')).toEqual(['fg', 'required', {}]);
    expect(sent('kimi-k3', 'low', named)).toEqual(['g', 'required', { reasoning_effort: 'low' }]);
    for (const id of ['deepseek-v4-pro', 'qwen3.8-max', 'kimi-k3'])
      for (const choice of ['auto', 'none'])
        expect(sent(id, 'low', choice).slice(0, 2)).toEqual(['fg', choice]);
    expect(sent('deepseek-v4-pro', undefined, 'auto')[2]).toEqual(enabled);
  });

  it('does without thinking, or with a placeholder, where the history lacks its reasoning', () => {
    const call: OrderMessage = {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
    };
    const messages: OrderMessage[] = [
      { role: 'user', content: 'x' },
      call,
      { role: 'tool', content: 'y', tool_call_id: 'a' },
    ];
    expect(switchFields(request('deepseek-v4-pro', 'high', { messages }))).toEqual({
      thinking: { type: 'disabled' },
    });
    const whole = [messages[0]!, { ...call, reasoning_content: 'hm' }, messages[2]!];
    expect(switchFields(request('deepseek-v4-pro', 'high', { messages: whole }))).toEqual({
      thinking: { type: 'enabled' },
      reasoning_effort: 'high',
    });
    expect(request('glm-5.3', undefined, { messages })['messages']).toBe(messages);
  });
});

describe('counters', () => {
  it.each([
    [
      'in the common shape',
      {
        usage: {
          prompt_tokens: 10,
          completion_tokens: 4,
          prompt_tokens_details: { cached_tokens: 3 },
          completion_tokens_details: { reasoning_tokens: 2 },
        },
      },
      [10, 3, 4, 2],
    ],
    [
      'of DeepSeek',
      {
        usage: {
          prompt_tokens: 10,
          completion_tokens: 4,
          prompt_cache_hit_tokens: 3,
          prompt_cache_miss_tokens: 7,
        },
      },
      [10, 3, 4, 0],
    ],
    [
      'of Kimi, in the choice',
      { choices: [{ usage: { prompt_tokens: 10, completion_tokens: 4, cached_tokens: 3 } }] },
      [10, 3, 4, 0],
    ],
    [
      'of a host that counts reasoning apart',
      {
        usage: {
          prompt_tokens: 10,
          completion_tokens: 4,
          completion_tokens_details: { reasoning_tokens: 9 },
        },
      },
      [10, 0, 13, 9],
    ],
    [
      'with more cached than read',
      { usage: { prompt_tokens: 10, completion_tokens: 4, cached_tokens: 30 } },
      [10, 10, 4, 0],
    ],
  ])('%s', (_what, chunk, [input, cached, output, reasoning]) => {
    expect(readCounters(chunk)).toEqual({ input, cached, output, reasoning });
  });

  it('are none when they cannot be believed', () => {
    for (const usage of [
      null,
      'x',
      {},
      { prompt_tokens: 1 },
      { prompt_tokens: -1, completion_tokens: 1 },
      { prompt_tokens: '1', completion_tokens: 1 },
      { prompt_tokens: 1.5, completion_tokens: 1 },
    ]) {
      expect(readCounters({ usage })).toBeNull();
    }
  });
});
