import { efforts } from '../../catalogue/model.js';
import { newCaller } from '../../../test/harness.js';
import { FakeBilling } from '../../../test/fake-billing.js';
import { bareCatalogue, readRequest } from '../../../test/messages.js';
import { readMessagesRequest } from './messages-request.js';

const messages = [{ role: 'user', content: 'hi' }];
const read = (more: Record<string, unknown>, purpose?: 'answer' | 'count') =>
  readRequest({ messages, ...more }, purpose);
const own = (name: string, more: object = {}) => ({
  name,
  description: `does ${name}`,
  input_schema: { $schema: 'https://json-schema.org/draft/2020-12/schema', type: 'object', properties: {} },
  ...more,
});
const refused = (code: string, words: string, status = 400) =>
  expect.objectContaining({ status, code, message: expect.stringContaining(words) });

describe('a request of the messages format', () => {
  it('becomes an order; what says nothing here is ignored', () => {
    const { order, hidesThinking } = read({
      system: [{ type: 'text', text: 's', cache_control: { type: 'ephemeral', ttl: '1h' } }],
      stream: true,
      temperature: 0.5,
      top_p: 0.9,
      top_k: 40,
      stop_sequences: ['END'],
      metadata: { user_id: 'u' },
      service_tier: 'auto',
      betas: ['x'],
      context_management: { edits: [] },
      diagnostics: {},
      container: null,
      mcp_servers: [],
    });
    expect(order).toEqual({
      format: 'messages',
      offer: bareCatalogue.get('kimi-k3'),
      messages: [{ role: 'system', content: 's' }, ...messages],
      tools: [],
      toolChoice: undefined,
      settings: { temperature: 0.5, top_p: 0.9, top_k: 40, stop: ['END'] },
      effort: undefined,
      ceiling: 100,
      stream: true,
    });
    expect(hidesThinking).toBe(false);
    expect(read({ stop_sequences: [] }).order.settings).toEqual({});
  });

  it('asks for a schema in either place', () => {
    const schema = { type: 'object', properties: { a: { type: 'string' } } };
    const format = { type: 'json_schema', schema };
    const expected = {
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
    };
    expect(read({ output_config: { format } }).order.settings).toEqual(expected);
    expect(read({ output_format: format }).order.settings).toEqual(expected);
    expect(() => read({ output_format: { type: 'text' } })).toThrow(refused('invalid_request', 'format'));
  });

  it.each([
    ['no model', { model: undefined }, 400, 'model_required', 'model'],
    ['an unknown model', { model: 'gpt-4' }, 404, 'model_not_found', 'gpt-4'],
    ['no ceiling', { max_tokens: undefined }, 400, 'max_tokens_required', 'max_tokens'],
    ['a ceiling of null', { max_tokens: null }, 400, 'max_tokens_required', 'max_tokens'],
    ['no tokens', { max_tokens: 0 }, 400, 'invalid_max_tokens', 'max_tokens'],
    ['half a token', { max_tokens: 1.5 }, 400, 'invalid_max_tokens', 'max_tokens'],
    ['too many tokens', { max_tokens: 262_145 }, 400, 'max_tokens_too_large', '262144'],
    [
      'servers of tools',
      { mcp_servers: [{ type: 'url', url: 'https://x' }] },
      400,
      'unsupported_parameter',
      'mcp_servers',
    ],
    ['a container', { container: 'c_1' }, 400, 'unsupported_parameter', 'container'],
    ['a container with skills', { container: { skills: [] } }, 400, 'unsupported_parameter', 'container'],
    ['a text for stream', { stream: 'yes' }, 400, 'invalid_request', 'stream'],
    ['a text for stops', { stop_sequences: 'END' }, 400, 'invalid_request', 'stop_sequences'],
    ['numbers for stops', { stop_sequences: [1] }, 400, 'invalid_request', 'stop_sequences'],
  ])('is refused with %s', (_what, more, status, code, words) => {
    expect(() => read(more)).toThrow(refused(code, words, status));
  });

  it('is refused when it is no object, and for a model that the key may not use', () => {
    const billing = new FakeBilling();
    const narrow = newCaller(billing, 0n, { models: ['glm-5.3'] });
    for (const body of [null, [], 'x', 1])
      expect(() => readMessagesRequest(body, bareCatalogue, narrow)).toThrow(
        refused('invalid_request', 'object'),
      );
    expect(() =>
      readMessagesRequest({ model: 'kimi-k3', max_tokens: 1, messages }, bareCatalogue, narrow),
    ).toThrow(refused('model_not_allowed', 'kimi-k3', 403));
  });

  it('is refused where the history lies elsewhere, with the details by which clients send all of it', () => {
    for (const thread of [{ type: 'create' }, { type: 'continue', previous_message_id: 'msg_1' }]) {
      expect(() => read({ thread })).toThrow(
        expect.objectContaining({
          status: 400,
          code: 'unsupported_parameter',
          message: expect.stringContaining('thread'),
          fields: { details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] } },
        }),
      );
    }
    const compaction = { type: 'summarize' };
    expect(() => read({ compaction })).toThrow(refused('unsupported_parameter', 'compaction'));
    expect(() => read({ compaction }, 'count')).not.toThrow();
  });

  it('may hold empty fields of what is not supported', () => {
    for (const empty of [null, undefined, [], {}, ''])
      expect(() =>
        read({ mcp_servers: empty, container: empty, thread: empty, compaction: empty }),
      ).not.toThrow();
  });

  it('is counted with the same checks, but needs no ceiling', () => {
    expect(read({ max_tokens: undefined }, 'count').order.messages).toEqual(messages);
    expect(read({ max_tokens: 999_999_999 }, 'count').order.messages).toEqual(messages);
    expect(() => read({ messages: [] }, 'count')).toThrow(refused('invalid_messages', 'messages'));
    expect(() => read({ model: 'gpt-4' }, 'count')).toThrow(refused('model_not_found', 'gpt-4', 404));
    expect(() => read({ container: 'x' }, 'count')).toThrow(refused('unsupported_parameter', 'container'));
  });
});

describe('tools of the messages format', () => {
  const names = (more: Record<string, unknown>) => read(more).order.tools.map((tool) => tool.function.name);

  it('are functions with the schema as it is', () => {
    const tool = own('look', { cache_control: { type: 'ephemeral' }, eager_input_streaming: true });
    expect(
      read({ tools: [tool, { ...own('go'), type: 'custom', description: undefined }] }).order.tools,
    ).toEqual([
      {
        type: 'function',
        function: { name: 'look', description: 'does look', parameters: tool.input_schema },
      },
      { type: 'function', function: { name: 'go', parameters: tool.input_schema } },
    ]);
  });

  it('of that ecosystem are taken out, and the choice with them', () => {
    const server = [
      { type: 'web_search_20250305', name: 'web_search', max_uses: 5 },
      { type: 'web_fetch_20250910', name: 'web_fetch' },
      { type: 'code_execution_20250825', name: 'code_execution' },
      { type: 'bash_20250124', name: 'bash' },
      { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool' },
      { type: 'memory_20250818', name: 'memory' },
      { type: 'mcp_toolset', mcp_server_name: 'x' },
    ];
    for (const choice of [
      { type: 'auto' },
      { type: 'any', disable_parallel_tool_use: true },
      { type: 'tool', name: 'web_search' },
      { type: 'none' },
    ]) {
      const { order } = read({ tools: server, tool_choice: choice });
      expect(order).toMatchObject({ tools: [], toolChoice: undefined, settings: {} });
    }
    expect(names({ tools: [...server, own('look')] })).toEqual(['look']);
    expect(
      read({ tools: [...server, own('look')], tool_choice: { type: 'tool', name: 'bash' } }).order.toolChoice,
    ).toBe(undefined);
    // One with a schema of its own can be run by the client.
    expect(names({ tools: [{ ...own('shell'), type: 'bash_20250124' }] })).toEqual(['shell']);
    expect(read({ tools: [], tool_choice: { type: 'auto' } }).order.toolChoice).toBe(undefined);
  });

  it.each([
    [{ type: 'auto' }, 'auto'],
    [{ type: 'any' }, 'required'],
    [{ type: 'none' }, 'none'],
    [
      { type: 'tool', name: 'look' },
      { type: 'function', function: { name: 'look' } },
    ],
    [undefined, undefined],
    [null, undefined],
  ])('choice %j', (choice, expected) => {
    expect(read({ tools: [own('look')], tool_choice: choice }).order.toolChoice).toEqual(expected);
  });

  it('are called one at a time when the client says so', () => {
    const choice = { type: 'auto', disable_parallel_tool_use: true };
    expect(read({ tools: [own('look')], tool_choice: choice }).order.settings).toEqual({
      parallel_tool_calls: false,
    });
    expect(read({ tools: [own('look')], tool_choice: { type: 'auto' } }).order.settings).toEqual({});
  });

  it('that wait for a search are there once the conversation has brought them in, and gone when it took them away', () => {
    const tools = [
      own('search'),
      own('late', { defer_loading: true }),
      own('later', { defer_loading: true }),
    ];
    expect(names({ tools })).toEqual(['search']);
    const found = [
      ...messages,
      { role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'search', input: {} }] },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: '1', content: [{ type: 'tool_reference', tool_name: 'late' }] },
        ],
      },
    ];
    expect(names({ tools, messages: found })).toEqual(['search', 'late']);
    expect(read({ tools, messages: found }).order.messages.at(-1)).toMatchObject({
      content: 'Tool found: late',
    });
    const change = (type: string, name: string) => ({
      role: 'system',
      content: [{ type, tool: { type: 'tool_reference', name } }],
    });
    expect(
      names({
        tools,
        messages: [
          ...found,
          change('tool_addition', 'later'),
          change('tool_removal', 'late'),
          change('tool_removal', 'search'),
        ],
      }),
    ).toEqual(['later']);
  });

  it.each([
    ['no list', { tools: {} }, 'tools'],
    ['a text for a tool', { tools: ['look'] }, 'tools.0'],
    ['a tool without name', { tools: [own('a'), { input_schema: {} }] }, 'tools.1.name'],
    ['an own tool without schema', { tools: [{ name: 'look' }] }, 'tools.0.input_schema'],
    ['an unknown choice', { tools: [own('a')], tool_choice: { type: 'some' } }, 'tool_choice.type'],
    ['a choice that is a text', { tools: [own('a')], tool_choice: 'auto' }, 'tool_choice.type'],
    [
      'a choice of what is not there',
      { tools: [own('a')], tool_choice: { type: 'tool', name: 'b' } },
      'tool_choice.name',
    ],
  ])('are refused with %s', (_what, more, words) => {
    expect(() => read(more)).toThrow(refused('invalid_tools', words));
  });
});

describe('thinking of the messages format', () => {
  const effort = (more: Record<string, unknown>) => {
    const { order, hidesThinking } = read(more);
    return [order.effort, hidesThinking];
  };
  const enabled = (budget: unknown) => ({ thinking: { type: 'enabled', budget_tokens: budget } });

  it.each([
    [1, 'low'],
    [1_024, 'low'],
    [4_096, 'low'],
    [4_097, 'medium'],
    [16_384, 'medium'],
    [16_385, 'high'],
    [200_000, 'high'],
  ])('with a budget of %d is %s', (budget, expected) => {
    expect(effort(enabled(budget))).toEqual([expected, false]);
  });

  it('that is adaptive goes by the effort, or is the default of the model; so is none at all', () => {
    const adaptive = { type: 'adaptive', display: 'omitted' };
    for (const level of efforts.filter((one) => one !== 'none'))
      expect(effort({ thinking: adaptive, output_config: { effort: level } })).toEqual([level, false]);
    expect(effort({ thinking: adaptive })).toEqual([undefined, false]);
    expect(effort({ thinking: adaptive, output_config: { effort: null } })).toEqual([undefined, false]);
    expect(effort({ thinking: { type: 'between_tools' } })).toEqual([undefined, false]);
    expect(effort({})).toEqual([undefined, false]);
    expect(effort({ thinking: null })).toEqual([undefined, false]);
    // Agents leave `thinking` out and the effort in.
    expect(effort({ output_config: { effort: 'high' } })).toEqual([undefined, false]);
  });

  it('that is disabled is off, and the shortest where a model cannot do without; it is not shown either', () => {
    const thinking = { type: 'disabled' };
    expect(effort({ thinking })).toEqual(['none', true]);
    for (const model of ['glm-5.3', 'qwen3.8-max'])
      expect(effort({ thinking, model })).toEqual(['low', true]);
  });

  it('changes nothing on models without reasoning', () => {
    for (const model of ['glm-5.2', 'qwen3-coder-next']) {
      for (const more of [
        enabled(5),
        enabled('lots'),
        { thinking: { type: 'disabled' } },
        { thinking: { type: 'adaptive' }, output_config: { effort: 'enormous' } },
      ])
        expect(effort({ model, ...more })[0]).toBeUndefined();
    }
  });

  it.each([
    ['no budget', enabled(undefined), 'invalid_thinking'],
    ['a budget of nothing', enabled(0), 'invalid_thinking'],
    ['a budget in words', enabled('high'), 'invalid_thinking'],
    ['no type', { thinking: {} }, 'invalid_thinking'],
    ['a text', { thinking: 'on' }, 'invalid_thinking'],
    [
      'an unknown effort',
      { thinking: { type: 'adaptive' }, output_config: { effort: 'enormous' } },
      'invalid_reasoning_effort',
    ],
    [
      'an effort of none',
      { thinking: { type: 'adaptive' }, output_config: { effort: 'none' } },
      'invalid_reasoning_effort',
    ],
  ])('is refused with %s', (_what, more, code) => {
    expect(() => read(more)).toThrow(refused(code, ''));
  });
});
