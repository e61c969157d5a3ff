import { readFileSync, writeFileSync } from 'node:fs';
import type { Route } from '../catalogue/catalogue.js';
import { efforts, type Effort } from '../catalogue/model.js';
import { builtInModels } from '../catalogue/models.js';
import type { Order, Tool } from '../completions/order.js';
import type { Dialect } from './dialect.js';
import { dialects } from './registry.js';
import { vendorRequest } from './vendor-request.js';

const tools: Tool[] = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];

function request(dialect: Dialect, modelId: string, more: Partial<Order> = {}): Record<string, unknown> {
  const model = builtInModels.find(({ id }) => id === modelId)!;
  const provider = { name: 'p', baseUrl: 'http://x', apiKey: null, dialect };
  const route: Route = { provider, vendorModel: modelId, weight: 1, priority: 0, dialect };
  const order: Order = {
    format: 'chat',
    offer: { model, routes: [route], simulated: false },
    messages: [{ role: 'user', content: 'x' }],
    tools: [],
    toolChoice: undefined,
    settings: {},
    effort: undefined,
    ceiling: 40_000,
    stream: true,
    ...more,
  };
  return vendorRequest(order, route);
}

/** What every request has anyway. */
const common = new Set([
  'model',
  'messages',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
]);
const rest = (body: Record<string, unknown>): string =>
  JSON.stringify(Object.fromEntries(Object.entries(body).filter(([name]) => !common.has(name))));

describe('what is sent', () => {
  /**
   * One line per vendor, model and effort: all fields that switch reasoning. The file was read, equal rows together, against
   * inference-wire.md, section 5; NEBO_GOLDEN=write writes it anew, to be read again.
   */
  it('about reasoning is what the golden file says, for every vendor, model and effort', () => {
    const file = new URL('../../test/golden/requests.txt', import.meta.url);
    const lines = Object.values(dialects).flatMap((dialect) =>
      builtInModels.flatMap(({ id }) =>
        [undefined, ...efforts].map(
          (effort: Effort | undefined) =>
            `${dialect.name} ${id} ${effort ?? '-'} ${rest(request(dialect, id, { effort }))}`,
        ),
      ),
    );
    expect(lines).toHaveLength(7 * 11 * 8);
    const text = `${lines.join('\n')}\n`;
    if (process.env['NEBO_GOLDEN'] === 'write') writeFileSync(file, text);
    expect(text).toBe(readFileSync(file, 'utf8'));
  });

  it.each([
    ['openai', 'max_tokens'],
    ['zhipu', 'max_tokens'],
    ['moonshot', 'max_completion_tokens'],
    ['qwen', 'max_tokens'],
    ['deepseek', 'max_tokens'],
    ['mimo', 'max_completion_tokens'],
    ['minimax', 'max_completion_tokens'],
  ])('%s: the ceiling is %s and no other, streamed, with counters', (name, field) => {
    const body = request(dialects[name]!, 'kimi-k3');
    expect(Object.keys(body).filter((key) => /max_/.test(key))).toEqual([field]);
    expect(body).toMatchObject({ [field]: 40_000, stream: true, stream_options: { include_usage: true } });
  });

  const choices = ['auto', 'none', 'required', { type: 'function', function: { name: 'f' } }];
  it.each([
    ['openai', ['auto', 'none', 'required', 'named']],
    ['zhipu', ['auto', 'no tools', 'left out', 'left out']],
    // The named one alone.
    ['moonshot', ['auto', 'none', 'required', 'required']],
    ['qwen', ['auto', 'none', 'required', 'named']],
    ['deepseek', ['auto', 'none', 'required', 'named']],
    ['mimo', ['auto', 'none', 'required', 'named']],
    ['minimax', ['left out', 'no tools', 'left out', 'left out']],
  ])('%s: the choice of a tool', (name, expected) => {
    const sent = choices.map((toolChoice) => {
      const body = request(dialects[name]!, 'kimi-k3', { tools, toolChoice });
      if (!('tools' in body)) return 'no tools';
      if (!('tool_choice' in body)) return 'left out';
      return typeof body['tool_choice'] === 'string' ? body['tool_choice'] : 'named';
    });
    expect(sent).toEqual(expected);
    // Without tools neither an empty list nor an orphaned choice.
    const bare = request(dialects[name]!, 'kimi-k3', { toolChoice: 'required' });
    expect(Object.keys(bare).filter((key) => key.startsWith('tool'))).toEqual([]);
  });

  const settings = {
    temperature: 1,
    top_p: 0.9,
    stop: ['x'],
    seed: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    logit_bias: {},
    logprobs: true,
    top_logprobs: 1,
    response_format: { type: 'json_object' },
    parallel_tool_calls: true,
  };
  it.each([
    ['openai', []],
    [
      'zhipu',
      [
        'seed',
        'presence_penalty',
        'frequency_penalty',
        'logit_bias',
        'logprobs',
        'top_logprobs',
        'parallel_tool_calls',
      ],
    ],
    [
      'moonshot',
      [
        'temperature',
        'top_p',
        'seed',
        'presence_penalty',
        'frequency_penalty',
        'logit_bias',
        'parallel_tool_calls',
      ],
    ],
    ['qwen', ['logit_bias']],
    ['deepseek', ['seed', 'logit_bias', 'parallel_tool_calls']],
    ['mimo', ['logit_bias', 'parallel_tool_calls']],
    [
      'minimax',
      [
        'seed',
        'presence_penalty',
        'frequency_penalty',
        'logit_bias',
        'logprobs',
        'top_logprobs',
        'parallel_tool_calls',
      ],
    ],
  ])('%s: settings that it refuses stay at home', (name, dropped) => {
    const body = request(dialects[name]!, 'kimi-k3', { settings, tools });
    expect(Object.keys(settings).filter((key) => !(key in body))).toEqual(dropped);
  });

  it('tool ids go on unchanged, with dots and colons', () => {
    const id = 'functions.get_weather:0';
    const messages: Order['messages'] = [
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name: 'f', arguments: '{}' } }],
        reasoning_content: 'r',
      },
      { role: 'tool', tool_call_id: id, content: 'x' },
    ];
    for (const dialect of Object.values(dialects))
      expect(request(dialect, 'kimi-k3', { messages })['messages']).toEqual(messages);
  });

  it('a budget stays below a small ceiling, so that an answer is left room', () => {
    const budget = (effort: Effort | undefined, ceiling: number) =>
      request(dialects['qwen']!, 'qwen3.8-max', { effort, ceiling })['thinking_budget'];
    expect([budget('low', 4_096), budget('high', 4_096), budget('max', 131_072), budget('low', 1)]).toEqual([
      2_048, 4_095, 81_920, 1,
    ]);
    // The vendor's ceiling may not cover reasoning, and nobody pays for more than the ceiling.
    expect([budget(undefined, 1), budget(undefined, 4_096), budget(undefined, 131_072)]).toEqual([
      1, 4_095, 81_920,
    ]);
  });
});
