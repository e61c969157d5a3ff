import { rawField } from '../call-arguments.js';
import { ToolInput } from './tool-input.js';

/** What a stream tells of arguments that come in pieces of a size, and what a plain answer has. */
function tell(raw: string, size: number) {
  const input = new ToolInput();
  let told = '';
  let first: number | null = null;
  for (let at = 0; at < raw.length; at += size) {
    input.push(raw.slice(at, at + size));
    const piece = input.take();
    if (piece !== '') first ??= at;
    told += piece;
  }
  return { text: told + input.end(), value: input.value(), first, isWhole: input.isWhole };
}
const sizes = [1, 3, 64, 100_000];
const long = 'x"{[\\]}я🙂\n'.repeat(80);

describe('arguments of a call', () => {
  it.each([
    ['nothing', '', {}],
    ['blanks', ' \n', {}],
    ['an empty object', '{}', {}],
    ['a short object', '{"a":[1,{"b":"}"}]}', { a: [1, { b: '}' }] }],
    ['an object with blanks around', '\n {"a": 1} \n', { a: 1 }],
    ['a long object', JSON.stringify({ path: 'a', content: long }), { path: 'a', content: long }],
    ['a list', '[1]', { [rawField]: '[1]' }],
    ['a text', '"ls"', { [rawField]: '"ls"' }],
    ['null', 'null', { [rawField]: 'null' }],
    ['no JSON', 'ls -l', { [rawField]: 'ls -l' }],
    ['single quotes', "{'a':1}", { [rawField]: "{'a':1}" }],
    ['two objects', '{}{"a":1}', { [rawField]: '{}{"a":1}' }],
    ['a short cut', '{"a":"b', { [rawField]: '{"a":"b' }],
  ])('are told as the plain answer has them: %s', (_what, raw, expected) => {
    for (const size of sizes) {
      const { text, value } = tell(raw, size);
      expect(value).toEqual(expected);
      expect(JSON.parse(text)).toEqual(expected);
    }
  });

  it('of a long one are told as they come, of a short one when they are whole', () => {
    expect(tell(JSON.stringify({ content: long }), 16).first).toBeLessThan(512);
    expect(tell('{"a":1}', 1).first).toBeNull();
  });

  it('that go on after their end keep all of it, in valid JSON', () => {
    const raw = `${JSON.stringify({ content: long })} and so on`;
    const { text, value } = tell(raw, 5);
    expect(JSON.parse(text)).toEqual({ content: long, [rawField]: raw });
    expect(value).toEqual({ [rawField]: raw });
    expect(tell(raw, 100_000).text).toBe(JSON.stringify({ [rawField]: raw }));
    const blank = `{${' '.repeat(300)}} x`;
    expect(JSON.parse(tell(blank, 5).text)).toEqual({ [rawField]: blank });
  });

  it('are told letter by letter as they were written, numbers beyond 2⁵³ too', () => {
    for (const raw of [
      '{"id": 12345678901234567890, "x": 1.0}',
      `{"id": 12345678901234567890, "x": "${'y'.repeat(300)}"}`,
    ])
      for (const size of sizes) expect(tell(raw, size).text).toBe(raw);
  });

  it('of a megabyte, in pieces of four letters, cost no more than reading them', () => {
    const raw = JSON.stringify({ content: 'abcdefg\n'.repeat(125_000) });
    const began = performance.now();
    expect(tell(raw, 4).text).toBe(raw);
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it('that the ceiling cut after much was told end where they were cut', () => {
    const raw = JSON.stringify({ content: long }).slice(0, -40);
    expect(tell(raw, 7)).toMatchObject({ text: raw, value: { [rawField]: raw }, isWhole: false });
  });
});
