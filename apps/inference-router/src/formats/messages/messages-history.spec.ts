import { readOf } from '../../../test/messages.js';

const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } };
const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=' } };
const text = (value: string) => ({ type: 'text', text: value, cache_control: { type: 'ephemeral' } });
const use = (id: string, input: object = {}) => ({ type: 'tool_use', id, name: 'look', input });
const call = (id: string, args = '{}') => ({
  id,
  type: 'function',
  function: { name: 'look', arguments: args },
});
const result = (id: string, content?: unknown, more: object = {}) => ({
  type: 'tool_result',
  tool_use_id: id,
  ...(content === undefined ? {} : { content }),
  ...more,
});
const tool = (id: string, content: unknown) => ({ role: 'tool', tool_call_id: id, content });
const user = (content: unknown) => ({ role: 'user', content });
const assistant = (content: unknown) => ({ role: 'assistant', content });

describe('a history of messages', () => {
  it('has texts and blocks, system as text or blocks, and a system message in the middle', () => {
    const history = [
      user('hi'),
      { role: 'system', content: [text('be brief'), text('be kind')] },
      assistant([text('yes '), text('sir')]),
      { role: 'system', content: 'now in Russian' },
      user([text('a'), text(''), text('b')]),
    ];
    const rest = [
      user('hi'),
      { role: 'system', content: 'be brief\n\nbe kind' },
      assistant('yes sir'),
      { role: 'system', content: 'now in Russian' },
      user('a\n\nb'),
    ];
    expect(readOf(history)).toEqual(rest);
    expect(readOf(history, { system: 'rules' })).toEqual([{ role: 'system', content: 'rules' }, ...rest]);
    expect(readOf(history, { system: [text('rules'), text('more')] })).toEqual([
      { role: 'system', content: 'rules\n\nmore' },
      ...rest,
    ]);
    expect(readOf(history, { system: '' })).toEqual(rest);
    expect(readOf(history, { system: [] })).toEqual(rest);
  });

  it('has images with bytes or a link, in the order of their place among texts', () => {
    const link = { type: 'image', source: { type: 'url', url: 'https://example.org/cat.png' } };
    expect(readOf([user([text('a'), image, text('b'), link])])).toEqual([
      user([
        { type: 'text', text: 'a' },
        picture,
        { type: 'text', text: 'b' },
        { type: 'image_url', image_url: { url: 'https://example.org/cat.png' } },
      ]),
    ]);
  });

  it('has calls with their thinking, word for word and with any signature', () => {
    const turn = [
      { type: 'thinking', thinking: 'let me ', signature: '' },
      { type: 'thinking', thinking: 'see', signature: 'abc' },
      { type: 'redacted_thinking', data: 'xxx' },
      text('I look.'),
      use('functions.look:0', { path: 'a' }),
      use('call.2'),
    ];
    expect(
      readOf([user('go'), assistant(turn), user([result('functions.look:0', 'A'), result('call.2', 'B')])]),
    ).toEqual([
      user('go'),
      {
        role: 'assistant',
        content: 'I look.',
        tool_calls: [call('functions.look:0', '{"path":"a"}'), call('call.2')],
        reasoning_content: 'let me see',
      },
      tool('functions.look:0', 'A'),
      tool('call.2', 'B'),
    ]);
    expect(readOf([user('go'), assistant([use('1')]), user([result('1', 'A')])])[1]).toEqual({
      role: 'assistant',
      content: null,
      tool_calls: [call('1')],
    });
  });

  it.each([
    ['nothing', undefined, {}, ''],
    ['null', null, {}, ''],
    ['a text', 'done', {}, 'done'],
    ['blocks of text', [text('a'), text('b')], {}, 'a\n\nb'],
    ['an image and a text', [text('see'), image], {}, [{ type: 'text', text: 'see' }, picture]],
    ['an image alone', [image], {}, [picture]],
    ['an error', 'no such file', { is_error: true }, 'Error: no such file'],
    ['an error that says so itself', 'Error: gone', { is_error: true }, 'Error: gone'],
    [
      'an error in tags',
      '<tool_use_error>gone</tool_use_error>',
      { is_error: true },
      '<tool_use_error>gone</tool_use_error>',
    ],
    ['an error without words', undefined, { is_error: true }, 'Error'],
    ['no error', 'fine', { is_error: false }, 'fine'],
    [
      'a find of a search',
      [{ type: 'search_result', title: 'T', source: 's', content: [text('found')] }],
      {},
      'T\ns\nfound',
    ],
    ['a thing that nobody knows', [{ type: 'browser_state', tabs: [] }, text('x')], {}, 'x'],
  ])('has results of tools: %s', (_what, content, more, expected) => {
    expect(readOf([user('go'), assistant([use('1')]), user([result('1', content, more)])])[2]).toEqual(
      tool('1', expected),
    );
  });

  it('has the results directly after the calls, in their order, and what was said beside them after', () => {
    const calls = assistant([use('1'), use('2'), use('3')]);
    const asked = { role: 'assistant', content: null, tool_calls: [call('1'), call('2'), call('3')] };
    const results = [tool('2', 'B'), tool('1', 'A'), tool('3', 'C')];
    // Text before, between and after.
    expect(
      readOf([
        user('go'),
        calls,
        user([text('x'), result('2', 'B'), text('y'), result('1', 'A'), result('3', 'C'), text('z')]),
      ]),
    ).toEqual([user('go'), asked, ...results, user('x\n\ny\n\nz')]);
    // Notes and messages between.
    expect(
      readOf([
        user('go'),
        calls,
        { role: 'system', content: 'note' },
        user([result('2', 'B'), text('x')]),
        user([result('1', 'A')]),
        user([text('y'), result('3', 'C')]),
      ]),
    ).toEqual([user('go'), asked, ...results, { role: 'system', content: 'note' }, user('x\n\ny')]);
  });

  it('has one message where a role speaks twice, and none where nothing is said', () => {
    expect(
      readOf([
        user('a'),
        user([text('b'), image]),
        assistant(''),
        assistant([{ type: 'thinking', thinking: 'hm', signature: '' }]),
        assistant('c'),
        assistant([{ type: 'thinking', thinking: 'so', signature: '' }, text('d'), use('1')]),
        assistant([{ type: 'thinking', thinking: 'on', signature: '' }, use('2')]),
        user([result('1'), result('2')]),
        user([]),
        user('e'),
        assistant([{ type: 'thinking', thinking: 'led to nothing', signature: '' }]),
      ]),
    ).toEqual([
      user([{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }, picture]),
      {
        role: 'assistant',
        content: 'c\n\nd',
        tool_calls: [call('1'), call('2')],
        reasoning_content: 'hm\n\nso\n\non',
      },
      tool('1', ''),
      tool('2', ''),
      user('e'),
    ]);
  });

  it('has the summary that another service made of what came before', () => {
    expect(
      readOf([user('go'), assistant([{ type: 'compaction', content: 'We went.' }]), user('on')]),
    ).toEqual([user('go'), assistant('We went.'), user('on')]);
  });

  it('ends with what the answer is to begin with', () => {
    expect(readOf([user('a'), assistant('{"x":')])).toEqual([user('a'), assistant('{"x":')]);
  });

  it('leaves out what other services put into it', () => {
    expect(
      readOf([
        user([{ type: 'mcp_tool_result', tool_use_id: 'm' }, text('a')]),
        assistant([
          { type: 'server_tool_use', id: 's', name: 'web_search', input: {} },
          { type: 'web_search_tool_result', tool_use_id: 's', content: [] },
          { type: 'code_execution_tool_result', tool_use_id: 's', content: {} },
          { type: 'mcp_tool_use', id: 'm', name: 'x', input: {} },
          { type: 'compaction', content: null },
          text('b'),
        ]),
        user('c'),
      ]),
    ).toEqual([user('a'), assistant('b'), user('c')]);
  });

  it.each([
    ['no messages', undefined, 'invalid_messages', 'messages'],
    ['an empty list', [], 'invalid_messages', 'messages'],
    [
      'nothing that can be read',
      [user([{ type: 'redacted_thinking', data: 'x' }])],
      'invalid_messages',
      'messages',
    ],
    ['a text for a message', ['hi'], 'invalid_messages', 'messages.0'],
    ['an unknown role', [{ role: 'tool', content: 'x' }], 'invalid_messages', 'messages.0.role'],
    ['no content', [{ role: 'user' }], 'invalid_messages', 'messages.0.content'],
    ['a block without type', [user([{ text: 'x' }])], 'invalid_messages', 'messages.0.content.0.type'],
    ['a null for a block', [user([null])], 'invalid_messages', 'messages.0.content.0'],
    [
      'a number for a text',
      [user([{ type: 'text', text: 1 }])],
      'invalid_messages',
      'messages.0.content.0.text',
    ],
    [
      'a result without id',
      [user([{ type: 'tool_result', content: 'x' }])],
      'invalid_messages',
      'messages.0.content.0.tool_use_id',
    ],
    [
      'a call without name',
      [user('x'), assistant([{ type: 'tool_use', id: '1' }])],
      'invalid_messages',
      'messages.1.content.0.name',
    ],
    ['a call of the user', [user([use('1')])], 'invalid_messages', 'messages.0.content.0'],
    [
      'a result of the assistant',
      [user('x'), assistant([result('1')])],
      'invalid_messages',
      'messages.1.content.0',
    ],
    [
      'an image of the assistant',
      [user('x'), assistant([image])],
      'invalid_messages',
      'messages.1.content.0',
    ],
    [
      'a document',
      [user('x'), assistant('y'), user([text('z'), { type: 'document', source: {} }])],
      'unsupported_content',
      'messages.2.content.1',
    ],
    [
      'a document in a result',
      [user('x'), assistant([use('1')]), user([result('1', [{ type: 'document', source: {} }])])],
      'unsupported_content',
      'messages.2.content.0.content.0',
    ],
    [
      'a document of the assistant',
      [user('x'), assistant([{ type: 'document' }])],
      'unsupported_content',
      'messages.1.content.0',
    ],
    ['a sound', [user([{ type: 'input_audio', data: 'x' }])], 'unsupported_content', 'messages.0.content.0'],
    [
      'an upload',
      [user([{ type: 'container_upload', file_id: 'x' }])],
      'unsupported_content',
      'messages.0.content.0',
    ],
    [
      'an image out of a file',
      [user([{ type: 'image', source: { type: 'file', file_id: 'x' } }])],
      'unsupported_content',
      'messages.0.content.0',
    ],
    [
      'an image of no kind',
      [user([{ type: 'image' }])],
      'invalid_messages',
      'messages.0.content.0.source.type',
    ],
    [
      'an image that is a page',
      [user([{ type: 'image', source: { type: 'base64', media_type: 'text/html', data: 'x' } }])],
      'invalid_messages',
      'media_type',
    ],
    [
      'an image without bytes',
      [user([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '' } }])],
      'invalid_messages',
      'data',
    ],
    [
      'an image on a disk',
      [user([{ type: 'image', source: { type: 'url', url: 'file:///etc/passwd' } }])],
      'invalid_messages',
      'source.url',
    ],
  ])('is refused with %s, and the place is named', (_what, messages, code, place) => {
    expect(() => readOf(messages)).toThrow(
      expect.objectContaining({ status: 400, code, message: expect.stringContaining(place) }),
    );
  });

  it('is refused with an image where the model has no eyes, in a result too, and with a system prompt that is no text', () => {
    for (const content of [[image], [result('1', [image])]]) {
      expect(() => readOf([user(content)], { model: 'glm-5.3' })).toThrow(
        expect.objectContaining({
          status: 400,
          code: 'unsupported_content',
          message: expect.stringMatching(/messages\.0.*glm-5\.3 takes no images/),
        }),
      );
    }
    for (const system of [1, [image], ['x']]) {
      expect(() => readOf([user('x')], { system })).toThrow(
        expect.objectContaining({
          status: 400,
          code: 'invalid_messages',
          message: expect.stringContaining('system'),
        }),
      );
    }
  });
});
