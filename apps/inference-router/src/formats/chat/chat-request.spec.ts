import { caller } from '../../../test/harness.js';
import { bareCatalogue } from '../../../test/messages.js';
import { readChatRequest } from './chat-request.js';

const hi = [{ role: 'user', content: 'hi' }];
const read = (more: Record<string, unknown>) =>
  readChatRequest({ model: 'kimi-k3', messages: hi, ...more }, bareCatalogue, caller).order;
const text = (value: string) => ({ type: 'text', text: value });
const image = { type: 'image_url', image_url: { url: 'https://example.org/a.png' } };
const called = { id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } };

describe('contents of a chat request', () => {
  it.each(['system', 'developer', 'user', 'assistant', 'tool'])(
    'nothing but text is one text, since not every vendor takes lists: %s',
    (role) => {
      const one = { role, tool_call_id: 'a', content: [text('a'), { ...text('b'), cache_control: {} }] };
      expect(read({ messages: [...hi, one] }).messages[1]!.content).toBe('a\n\nb');
      expect(read({ messages: [...hi, { ...one, content: [] }] }).messages[1]!.content).toBe('');
    },
  );

  it('beside a picture empty texts are left out', () => {
    const messages = [{ role: 'user', content: [text(''), image, text('what is it?')] }];
    expect(read({ messages }).messages[0]!.content).toEqual([image, text('what is it?')]);
  });

  it.each([[''], [null], [undefined], [[]], [[text('')]]])('beside calls %j is none', (content) => {
    const messages = [...hi, { role: 'assistant', content, tool_calls: [called] }];
    expect(read({ messages }).messages[1]).toEqual({
      role: 'assistant',
      content: null,
      tool_calls: [called],
    });
  });
});

describe('the choice of tools in a chat request', () => {
  const tools = ['f', 'g', 'h'].map((name) => ({ type: 'function', function: { name } }));
  const allowed = (mode: string, ...names: string[]) => ({
    type: 'allowed_tools',
    allowed_tools: { mode, tools: names.map((name) => ({ type: 'function', function: { name } })) },
  });
  const names = (choice: unknown) => {
    const { tools: left, toolChoice } = read({ tools, tool_choice: choice });
    return [toolChoice, ...left.map((one) => one.function.name)];
  };

  it('that allows some leaves the others at home', () => {
    expect(names(allowed('auto', 'f', 'h'))).toEqual(['auto', 'f', 'h']);
    expect(names(allowed('required', 'g', 'unknown'))).toEqual(['required', 'g']);
    expect(() => names({ type: 'allowed_tools' })).toThrow(
      expect.objectContaining({ status: 400, code: 'invalid_tools' }),
    );
  });

  it('goes to the vendor as it is, but one of a tool that was taken out', () => {
    for (const choice of ['auto', 'none', 'required', { type: 'function', function: { name: 'g' } }])
      expect(names(choice)).toEqual([choice, 'f', 'g', 'h']);
    for (const choice of [null, undefined, { type: 'web_search' }, { type: 'custom', custom: { name: 'x' } }])
      expect(names(choice)).toEqual([undefined, 'f', 'g', 'h']);
  });
});
