import { forTerminal } from '../core/io.js';
import { aligned, pickColumns, tabSeparated } from './table.js';
import { fit, width } from './width.js';

const plain = (text: string) => text;

describe('tables', () => {
  test('aligned by what is seen: Cyrillic, wide letters, combining marks', () => {
    expect(['веб', '日本', 'e\u0301', '🎉'].map(width)).toEqual([3, 4, 1, 2]);
    expect(fit('日本語', 5)).toBe('日本…');
    expect(
      aligned(
        [
          ['日本', 'x'],
          ['веб', 'y'],
        ],
        ['NAME', 'B'],
        80,
        plain,
      ),
    ).toBe('NAME  B\n日本  x\nвеб   y\n');
  });

  test('the widest column gives way when the terminal is narrow', () => {
    const text = aligned([['short', 'x'.repeat(100)]], null, 40, plain);
    expect(text.trimEnd()).toHaveLength(40);
    expect(text).toMatch(/^short {2}x+…\n$/);
  });

  test('a cell cannot move the cursor or break its line on a terminal, and not break a row in a pipe', () => {
    expect(aligned([['a\u001b[2Jb\nc\u0007']], null, 80, plain)).toBe('ab c\n');
    expect(tabSeparated([['a\tb\nc\\']])).toBe('a\\tb\\nc\\\\\n');
  });

  test('--columns takes any field of the record, also inside', () => {
    const sample = { name: 'a', inner: { deep: 1 } };
    expect(
      pickColumns<typeof sample>([{ key: 'name' }], 'inner.deep, name', false, sample).map(({ key }) => key),
    ).toEqual(['inner.deep', 'name']);
    expect(() => pickColumns<typeof sample>([{ key: 'name' }], 'nmae', false, sample)).toThrow(
      'no column "nmae"',
    );
  });
});

describe('log lines on a terminal', () => {
  test('colour stays when wanted, everything else that a terminal obeys goes', () => {
    const line =
      '\u001b[31mred\u001b[0m\u001b]52;c;c2VjcmV0\u0007\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\\u001b[2K\u0008!';
    expect(forTerminal(line, true)).toBe('\u001b[31mred\u001b[0mlink!');
    expect(forTerminal(line, false)).toBe('redlink!');
  });

  test('a line rewritten with \\r is its last state', () => {
    expect(forTerminal('10 %\r50 %\r100 %', true)).toBe('100 %');
    expect(forTerminal('done\r', true)).toBe('done');
  });
});
