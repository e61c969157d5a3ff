import type { Dialect } from '../dialects/dialect.js';
import { dialects } from '../dialects/registry.js';
import { UpstreamEvent } from '../upstreams/upstream-event.js';
import { AnswerReader } from './answer-reader.js';
import { plainText } from './plain-text.js';
import { together } from '../../test/outbound.js';

const provider = { name: 'p', baseUrl: 'https://api.vendor.example/v1', apiKey: 'secret-key' };
const source = (dialect: Dialect) => ({ dialect, provider: { ...provider, dialect } });
const reader = (name: string, hide = false) => new AnswerReader(source(dialects[name]!), hide);
const event = (value: unknown) => new UpstreamEvent(JSON.stringify(value));
const delta = (value: object, finish: string | null = null) =>
  event({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta: value, finish_reason: finish }],
  });

function readAll(one: AnswerReader, events: UpstreamEvent[]) {
  return together(
    events.flatMap((data) => one.read(data) ?? []),
    one,
  );
}

describe('a chunk that is just text', () => {
  const choice = '{"index":0,"delta":{"content":"Hi"},"finish_reason":null}';

  it.each([
    [`{"choices":[${choice}]}`],
    [`{"id":"a","object":"chat.completion.chunk","created":12,"model":"glm-5.3","choices":[${choice}]}`],
    [`{"id":"a","system_fingerprint":null,"choices":[${choice}],"usage":null}`],
    [`{"choices":[${choice}],"created":12,"id":"a","model":"m","service_tier":null}`],
  ])('is told by its text alone: %s', (data) => {
    expect(plainText(data)).toEqual({ content: 'Hi', choice });
  });

  it('is unescaped', () => {
    const content = 'a "b" \\ \n \u2028 \ud83d\ude42 é';
    const data = JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
    expect(plainText(data)!.content).toBe(content);
    expect(
      plainText('{"choices":[{"index":0,"delta":{"content":"\\u0041\\/"},"finish_reason":null}]}')!.content,
    ).toBe('A/');
  });

  it.each([
    ['counters', `{"choices":[${choice}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`],
    ['an error', `{"choices":[${choice}],"error":{"message":"x"}}`],
    ['a status of the vendor', `{"choices":[${choice}],"base_resp":{"status_code":1008}}`],
    ['a finish reason', '{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}'],
    ['a role', '{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}'],
    ['no text', '{"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}'],
    ['another choice', '{"choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}'],
    ['two choices', `{"choices":[${choice},${choice}]}`],
    ['reasoning', '{"choices":[{"index":0,"delta":{"reasoning_content":"Hi"},"finish_reason":null}]}'],
    ['spaces', `{ "choices": [${choice}] }`],
    ['a wrong escape', '{"choices":[{"index":0,"delta":{"content":"\\x"},"finish_reason":null}]}'],
    ['a control character', '{"choices":[{"index":0,"delta":{"content":"\u0001"},"finish_reason":null}]}'],
    ['something after it', `{"choices":[${choice}]}x`],
    [
      'a megabyte',
      `{"choices":[{"index":0,"delta":{"content":"${'x'.repeat(1_000_000)}"},"finish_reason":null}]}`,
    ],
  ])('is not one with %s', (_what, data) => {
    expect(plainText(data)).toBeNull();
  });

  it('gives the same as parsing, whatever the text', () => {
    for (const content of [
      'x',
      '"',
      '\\',
      '\\"',
      '\u0000',
      '\ud800',
      '{"choices":[]}',
      '</think>',
      'я'.repeat(5_000),
    ]) {
      const one = delta({ content });
      const plain = plainText(one.data);
      expect(plain?.content ?? content).toBe(content);
      expect(reader('openai').read(one)).toMatchObject({ content });
    }
  });
});

describe('reasoning inside the text', () => {
  const text = (pieces: string[]) => [...pieces.map((content) => delta({ content })), delta({}, 'stop')];

  it.each([
    ['whole', ['<think>hm</think>', '\n\nHello']],
    ['in odd pieces', ['<th', 'ink>', 'h', 'm</', 'thin', 'k>\n', '\nHel', 'lo']],
    ['character by character', [...'<think>\nhm</think>\n\nHello'.replace('\n', '')]],
    ['after blanks', ['\n', '<think>hm</think>Hello']],
  ])('is taken out, %s', (_what, pieces) => {
    expect(readAll(reader('minimax'), text(pieces))).toMatchObject({ reasoning: 'hm', content: 'Hello' });
  });

  it.each([
    ['another tag', ['<thi', 'ng> is a word'], '<thing> is a word'],
    ['a tag later on', ['Use ', '<think>', 'x</think>'], 'Use <think>x</think>'],
    ['what could have become one', ['<thin'], '<thin'],
    ['a dialect without the habit', null, '<think>hm</think>'],
  ])('text stays text: %s', (_what, pieces, content) => {
    const one = pieces ? reader('minimax') : reader('zhipu');
    expect(readAll(one, text(pieces ?? ['<think>hm</think>']))).toMatchObject({ content, reasoning: '' });
  });

  it('that never ends is all reasoning; a tag after reasoning of its own field is text', () => {
    expect(readAll(reader('minimax'), text(['<think>hm', ' and </th']))).toMatchObject({
      reasoning: 'hm and </th',
      content: '',
    });
    expect(
      readAll(reader('minimax'), [delta({ reasoning_content: 'hm' }), ...text(['<think>x</think>'])]),
    ).toMatchObject({ reasoning: 'hm', content: '<think>x</think>' });
  });

  it('is taken out where the host has an empty list of calls in every chunk', () => {
    const pieces = ['<th', 'ink>h', 'm</think>', 'Hello'];
    const events = pieces.map((content) => delta({ content, tool_calls: [] }));
    expect(readAll(reader('minimax'), [...events, delta({}, 'stop')])).toMatchObject({
      reasoning: 'hm',
      content: 'Hello',
    });
  });

  it('is hidden when it was switched off, and kept for the tool turns to come', () => {
    const one = reader('minimax', true);
    expect(readAll(one, text(['<think>hm</think>Hello']))).toMatchObject({ reasoning: '', content: 'Hello' });
    expect(one.reasoningText()).toBe('hm');
  });

  it('stands in other fields too', () => {
    expect(
      readAll(reader('openai'), [
        delta({ reasoning: 'a' }),
        delta({ reasoning_content: '', reasoning: 'b' }),
      ]),
    ).toMatchObject({
      reasoning: 'ab',
    });
    expect(
      readAll(reader('minimax'), [delta({ reasoning_details: [{ type: 'reasoning.text', text: 'c' }] })]),
    ).toMatchObject({
      reasoning: 'c',
    });
  });
});

describe('tool calls as vendors send them', () => {
  const call = (value: object) => delta({ tool_calls: [value] });

  it('interleaved, with ids of dots and colons, names repeated and ids empty', () => {
    const read = readAll(reader('moonshot'), [
      call({ index: 0, id: 'functions.a:0', type: 'function', function: { name: 'a', arguments: '' } }),
      call({ index: 1, id: 'functions.b:1', type: 'function', function: { name: 'b', arguments: '{"y"' } }),
      call({ index: 0, id: '', function: { name: '', arguments: '{"x":1' } }),
      call({ index: 1, id: 'functions.b:1', function: { name: 'b', arguments: ':2}' } }),
      call({ index: 0, function: { arguments: '}' } }),
      delta({}, 'tool_calls'),
    ]);
    expect(read.calls).toEqual([
      { id: 'functions.a:0', name: 'a', arguments: '{"x":1}' },
      { id: 'functions.b:1', name: 'b', arguments: '{"y":2}' },
    ]);
    expect(read.finish).toBe('tool_calls');
  });

  it('arguments in one late chunk, as an object, or none at all', () => {
    const read = readAll(reader('zhipu'), [
      call({ index: 0, id: 'a', function: { name: 'f', arguments: '' } }),
      call({ index: 0, function: { arguments: '{"x":[1,2]}' } }),
      call({ index: 1, id: 'b', function: { name: 'g', arguments: { z: 1 } } }),
      call({ index: 2, id: 'c', function: { name: 'h' } }),
      delta({}, 'stop'),
    ]);
    expect(read.calls.map((one) => one.arguments)).toEqual(['{"x":[1,2]}', '{"z":1}', '']);
    expect(read.finish).toBe('tool_calls');
  });

  it('without an index, or with one index for two calls', () => {
    const bare = readAll(reader('openai'), [
      call({ id: 'a', function: { name: 'f', arguments: '{' } }),
      call({ function: { arguments: '}' } }),
    ]);
    expect(bare.calls).toEqual([{ id: 'a', name: 'f', arguments: '{}' }]);
    const same = readAll(reader('openai'), [
      call({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }),
      call({ index: 0, id: 'b', function: { name: 'g', arguments: '{}' } }),
    ]);
    expect(same.calls.map(({ id }) => id)).toEqual(['a', 'b']);
  });
});

describe("a vendor's error inside an answer", () => {
  it.each([
    ['its own status', { error: { message: 'x', status: 429 } }, 429],
    ['a code as text', { error: { message: 'x', code: '402' } }, 402],
    ['no number', { error: 'x' }, 502],
    ["MiniMax's code of money", { base_resp: { status_code: 1008, status_msg: 'insufficient' } }, 402],
    ["MiniMax's code of a bad request", { base_resp: { status_code: 2013, status_msg: 'bad' } }, 400],
    ["MiniMax's code that nobody knows", { base_resp: { status_code: 4711, status_msg: 'x' } }, 502],
  ])('is one: %s', (_what, value, status) => {
    expect(() => reader('minimax').read(event(value))).toThrow(
      expect.objectContaining({ trouble: 'refused', status }),
    );
  });

  it('shows nothing of the operator', () => {
    const words = 'secret-key at api.vendor.example of account 4711-99 is wrong: messages[0]';
    expect(() => reader('openai').read(event({ error: { message: words, code: 400 } }))).toThrow(
      expect.objectContaining({
        publicMessage: '******** at ******** of account ******** is wrong: messages[0]',
      }),
    );
  });

  it('is none where all is well', () => {
    expect(
      reader('minimax').read(event({ base_resp: { status_code: 0, status_msg: '' }, choices: [] })),
    ).toBeNull();
    expect(reader('openai').read(event({ error: null, choices: [] }))).toBeNull();
  });

  it('a vendor that gives up, and data that is no JSON, break the answer', () => {
    for (const [name, reason] of [
      ['deepseek', 'insufficient_system_resource'],
      ['zhipu', 'network_error'],
    ] as const)
      expect(() => reader(name).read(delta({}, reason))).toThrow(
        expect.objectContaining({ trouble: 'broken' }),
      );
    for (const reason of ['abort', 'error'])
      for (const name of Object.keys(dialects))
        expect(() => reader(name).read(delta({}, reason))).toThrow(
          expect.objectContaining({ trouble: 'broken' }),
        );
    for (const data of ['{', '[]', 'null', '"x"', '<html>'])
      expect(() => reader('openai').read(new UpstreamEvent(data))).toThrow(
        expect.objectContaining({ trouble: 'broken' }),
      );
  });
});
