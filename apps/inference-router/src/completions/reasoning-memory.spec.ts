import { builtInModels } from '../catalogue/models.js';
import type { Order, OrderMessage, ToolCall } from './order.js';
import { ReasoningMemory } from './reasoning-memory.js';

const model = builtInModels.find(({ id }) => id === 'kimi-k3')!;
const order = (messages: readonly OrderMessage[]): Order => ({
  format: 'chat',
  offer: { model, routes: [], simulated: false },
  messages,
  tools: [],
  toolChoice: undefined,
  settings: {},
  effort: undefined,
  ceiling: 100,
  stream: false,
});
const user = (content: string): OrderMessage => ({ role: 'user', content });
const call = (id: string, name: string, args: object | string): ToolCall => ({
  id,
  type: 'function',
  function: { name, arguments: typeof args === 'string' ? args : JSON.stringify(args) },
});
const assistant = (...calls: ToolCall[]): OrderMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: calls,
});
const result = (id: string, content: string): OrderMessage => ({ role: 'tool', tool_call_id: id, content });
const reasoningOf = ({ messages }: Order) =>
  messages.flatMap(({ role, reasoning_content: text }) => (role === 'assistant' ? [text] : []));

describe('reasoning that is kept for clients that do not bring it back', () => {
  /** A conversation whose vendor counts the ids of its calls anew in each answer. */
  const turns = [
    user('Fix it.'),
    assistant(call('read:0', 'read', { path: 'a' })),
    result('read:0', 'one'),
    assistant(call('read:0', 'read', { path: 'b' })),
    result('read:0', 'two'),
    assistant(call('read:0', 'read', { path: 'a' })),
    result('read:0', 'three'),
  ];
  const told = (memory: ReasoningMemory, conversation: readonly OrderMessage[], account = 'a') => {
    for (const [index, { tool_calls: calls }] of conversation.entries())
      if (calls) memory.remember(account, conversation.slice(0, index), calls, `thought ${index}`);
  };

  it('each turn gets its own, where calls of several turns have one id', () => {
    const memory = new ReasoningMemory();
    told(memory, turns);
    expect(reasoningOf(memory.restore(order(turns), 'a'))).toEqual(['thought 1', 'thought 3', 'thought 5']);
  });

  it('a conversation never gets that of another one of the account', () => {
    const memory = new ReasoningMemory();
    told(memory, turns);
    memory.remember('a', [user('Buy milk.')], [call('read:0', 'read', { path: 'list' })], 'milk');
    memory.remember('a', [user('Greet.')], [call('read:0', 'read', { path: 'a' })], 'hello');
    expect(reasoningOf(memory.restore(order(turns), 'a'))).toEqual(['thought 1', 'thought 3', 'thought 5']);
    const other = [user('What is new?'), assistant(call('read:0', 'read', { path: 'a' }))];
    expect(reasoningOf(memory.restore(order(other), 'a'))).toEqual([undefined]);
    expect(reasoningOf(memory.restore(order(turns), 'b'))).toEqual([undefined, undefined, undefined]);
  });

  it('is found though the client wrote the arguments anew, or changed what stands before', () => {
    const memory = new ReasoningMemory();
    const before = [user('Look.'), assistant(call('c1', 'look', {})), result('c1', 'a long text')];
    memory.remember('a', before, [call('c2', 'look', '{"x":1,"y":"ä"}')], 'because');
    for (const [args, text] of [
      ['{ "x": 1, "y": "\\u00e4" }', 'cut'],
      ['{"x":1,"y":"ä","z":null}', 'a long text'],
    ] as const) {
      const again = [user('Look.'), result('c1', text), assistant(call('c2', 'look', args))];
      expect(reasoningOf(memory.restore(order(again), 'a'))).toEqual(['because']);
    }
    const without = [user('x'), assistant(call('c2', 'look', 'no JSON'))];
    expect(reasoningOf(memory.restore(order(without), 'a'))).toEqual([undefined]);
  });

  it('holds so many characters at most; the oldest go', () => {
    const memory = new ReasoningMemory();
    const text = 'x'.repeat(1_000_000);
    const calls = Array.from({ length: 20 }, (_, index) => call(`c${index}`, 'f', { index }));
    for (const one of calls) memory.remember('a', [user('x')], [one], text);
    const found = calls.map((one) => reasoningOf(memory.restore(order([user('x'), assistant(one)]), 'a'))[0]);
    expect(found.map((one) => one === text)).toEqual(calls.map((_, index) => index >= 4));
  });
});
