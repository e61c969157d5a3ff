import { jsonText } from './json-body.js';

const refusal = (body: Buffer | string) => {
  try {
    jsonText(Buffer.from(body as string));
  } catch (error) {
    return error;
  }
  return null;
};

describe('bodies before they are parsed', () => {
  it.each([
    '{}',
    '[[],[{"a":"]]]}}}"}]]',
    '"text"',
    `${'['.repeat(100)}${']'.repeat(100)}`,
    '"\\\\"',
    '"\\"["',
  ])('lets %s through as it is', (text) => {
    expect(jsonText(Buffer.from(text))).toBe(text);
  });

  it('refuses what is nested deeper than a hundred levels, whatever it is nested in', () => {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
      ['[{"a":', '}]'],
    ] as const) {
      for (const depth of [101, 10_000, 100_000]) {
        expect(refusal(`${open.repeat(depth)}1${close.repeat(depth)}`)).toMatchObject({
          status: 400,
          code: 'bad_request',
        });
      }
    }
    // Unfinished or unbalanced text is the parser's to refuse.
    expect(refusal(']'.repeat(500))).toBeNull();
  });

  it('brackets and commas inside a text are text, also behind escaped quotes', () => {
    expect(refusal(JSON.stringify({ text: `"${'[{,"\\'.repeat(100_000)}` }))).toBeNull();
  });

  it('finds the end of every text, however long and however escaped', () => {
    for (let length = 0; length < 200; length += 1) {
      for (const tail of ['', '\\\\', '\\"', '\\\\\\"', '\\u0041']) {
        const text = `"${'a'.repeat(length)}${tail}${'b'.repeat(200 - length)}"`;
        expect(jsonText(Buffer.from(`[${text},{}]`))).toBe(`[${text},{}]`);
        expect(refusal(`[${text},${'['.repeat(200)}`)).toMatchObject({ status: 400 });
        expect(refusal(`[${text.slice(0, -1)},${'['.repeat(200)}`)).toBeNull();
      }
    }
  });

  it.each([
    ['plain', 'a'.repeat(16_000_000)],
    ['escaped all over', '\\"'.repeat(8_000_000)],
    ['escaped now and then', `${'a'.repeat(70)}\\n`.repeat(220_000)],
  ])('a long text, %s, takes a moment', (_what, text) => {
    const began = performance.now();
    expect(refusal(`{"text":"${text}"}`)).toBeNull();
    expect(performance.now() - began).toBeLessThan(1_500);
  });

  it('refuses more values than a request has, fast', () => {
    const began = performance.now();
    expect(refusal(`[${'{},'.repeat(5_000_000)}1]`)).toMatchObject({ status: 400 });
    expect(performance.now() - began).toBeLessThan(2_000);
    expect(refusal(`[${'1,'.repeat(200_000)}1]`)).toBeNull();
  });

  it('refuses what is not UTF-8: decoding would silently put another character there', () => {
    for (const bytes of [[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xd0]]) {
      expect(refusal(Buffer.concat([Buffer.from('"'), Buffer.from(bytes), Buffer.from('"')]))).toMatchObject({
        status: 400,
        message: 'the body is not UTF-8',
      });
    }
    expect(refusal('"😀 кириллица"')).toBeNull();
  });
});
