import type { OrderMessage, OrderPart } from '../completions/order.js';
import { dialects } from './registry.js';
import { vendorMessages } from './vendor-messages.js';

const image = (url: string): OrderPart => ({ type: 'image_url', image_url: { url } });
const text = (value: string): OrderPart => ({ type: 'text', text: value });
const call = (id: string) => ({ id, type: 'function' as const, function: { name: 'f', arguments: '{}' } });
const tool = (id: string, content: OrderMessage['content']): OrderMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});
const user: OrderMessage = { role: 'user', content: 'hi' };
const calls: OrderMessage = { role: 'assistant', content: null, tool_calls: [call('a'), call('b')] };

describe.each(Object.keys(dialects))('the history for %s', (name) => {
  const dialect = dialects[name]!;

  it('is the very same array where nothing has to change', () => {
    const messages: OrderMessage[] = [
      { role: 'system', content: 's' },
      user,
      calls,
      tool('a', 'x'),
      tool('b', 'y'),
    ];
    expect(vendorMessages(messages, dialect)).toBe(messages);
  });

  it('leaves out turns of the assistant that say nothing', () => {
    const empty: OrderMessage = { role: 'assistant', content: '', reasoning_content: 'so much to think' };
    const answer: OrderMessage = { role: 'assistant', content: 'x' };
    expect(vendorMessages([user, empty, user, answer, { ...empty, content: null }], dialect)).toEqual([
      user,
      user,
      answer,
    ]);
  });

  it('has the pictures of tools in one user message after all tool messages of the turn', () => {
    const messages = [
      user,
      calls,
      tool('a', [text('one'), image('http://x/1'), text('two')]),
      tool('b', [image('http://x/2')]),
      user,
      calls,
      tool('a', 'plain'),
      tool('b', [image('http://x/3')]),
    ];
    expect(vendorMessages(messages, dialect)).toEqual([
      user,
      calls,
      tool('a', 'one\ntwo'),
      tool('b', 'Image below.'),
      {
        role: 'user',
        content: [text('Images of the tools above:'), image('http://x/1'), image('http://x/2')],
      },
      user,
      calls,
      tool('a', 'plain'),
      tool('b', 'Image below.'),
      { role: 'user', content: [text('Images of the tools above:'), image('http://x/3')] },
    ]);
  });
});

describe('system messages', () => {
  const system = (content: OrderMessage['content']): OrderMessage => ({ role: 'system', content });

  it.each(['openai', 'zhipu', 'moonshot', 'deepseek'])('stay where they are for %s', (name) => {
    const messages = [system('a'), system('b'), user, system('c')];
    expect(vendorMessages(messages, dialects[name]!)).toBe(messages);
  });

  it.each(['qwen', 'mimo', 'minimax'])(
    'are one at the front for %s, and later ones text of the user',
    (name) => {
      const dialect = dialects[name]!;
      expect(
        vendorMessages([system('a'), system([text('b'), text('c')]), user, system('d')], dialect),
      ).toEqual([system('a\n\nb\nc'), user, { role: 'user', content: '[System] d' }]);
      expect(vendorMessages([user, system([text('x')])], dialect)).toEqual([
        user,
        { role: 'user', content: [text('[System] '), text('x')] },
      ]);
    },
  );

  it('never stand between calls and their results', () => {
    const [a, b] = [tool('a', [image('http://x/1')]), tool('b', 'y')];
    expect(
      vendorMessages([user, calls, system('n'), a, system('m'), b, system('o'), user], dialects['qwen']!),
    ).toEqual([
      user,
      calls,
      tool('a', 'Image below.'),
      b,
      { role: 'user', content: [text('Images of the tools above:'), image('http://x/1')] },
      { role: 'user', content: '[System] n' },
      { role: 'user', content: '[System] m' },
      { role: 'user', content: '[System] o' },
      user,
    ]);
  });
});
