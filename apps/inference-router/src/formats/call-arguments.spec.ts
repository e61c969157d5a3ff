import { caller } from '../../test/harness.js';
import { bareCatalogue } from '../../test/messages.js';
import { readChatRequest } from './chat/chat-request.js';
import { readInput } from './responses/responses-input.js';

const given: readonly [string, unknown, string][] = [
  ['an object', '{"a": 1}', '{"a": 1}'],
  ['an object that the client sends as one', { a: 1 }, '{"a":1}'],
  ['nothing', '', '{}'],
  ['blanks', ' \n', '{}'],
  ['no field', undefined, '{}'],
  ['other JSON', '[1]', '[1]'],
  [
    'a beginning, of an answer that was cut',
    '{"path":"a.ts","text":"li',
    '{"raw_arguments":"{\\"path\\":\\"a.ts\\",\\"text\\":\\"li"}',
  ],
  ['a beginning that ends like a whole', '{"a":{"b":1}', '{"raw_arguments":"{\\"a\\":{\\"b\\":1}"}'],
];

describe('arguments of a call in a history', () => {
  it.each(given)('of the chat format: %s', (_name, args, expected) => {
    const called = { id: 'c', type: 'function', function: { name: 'f', arguments: args } };
    const { order } = readChatRequest(
      {
        model: 'kimi-k3',
        messages: [
          { role: 'user', content: 'hi' },
          { role: 'assistant', tool_calls: [called] },
          { role: 'tool', tool_call_id: 'c', content: 'x' },
        ],
      },
      bareCatalogue,
      caller,
    );
    expect(order.messages[1]!.tool_calls![0]!.function.arguments).toBe(expected);
  });

  it.each(given)('of the responses format: %s', (_name, args, expected) => {
    const model = bareCatalogue.get('kimi-k3')!.model;
    const messages = readInput(
      undefined,
      [
        { type: 'function_call', call_id: 'c', name: 'f', arguments: args },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
      ],
      { model, open: () => null },
    );
    expect(messages[0]!.tool_calls![0]!.function.arguments).toBe(expected);
  });
});
