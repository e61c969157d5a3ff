import { dice } from '../../../test/dice.js';
import { CustomInput, wholeText } from './custom-input.js';

/** What comes out when `raw` arrives in these pieces. */
function read(...pieces: string[]): { deltas: string[]; end: string; text: string } {
  const input = new CustomInput();
  const deltas = pieces.map((piece) => input.push(piece));
  const end = input.end();
  return { deltas, end, text: deltas.join('') + end };
}

/** Is there no lone half of a character? JSON would escape it. */
const isWhole = (text: string) => !/\\ud[89a-f]/.test(JSON.stringify(text).replaceAll('\\\\', ''));

describe('input of a free-input tool', () => {
  it('streams the text as the model writes it', () => {
    expect(read('{"inp', 'ut": "*** Be', 'gin\\n+x', '"}')).toEqual({
      deltas: ['', '*** Be', 'gin\n+x', ''],
      end: '',
      text: '*** Begin\n+x',
    });
  });

  it('reads any text in any pieces, and no piece ends inside a character', () => {
    const roll = dice(7);
    const alphabet = [
      'a',
      '"',
      '\\',
      '\n',
      '\t',
      '\b',
      '\u0001',
      '/',
      '{',
      '}',
      'я',
      '🙂',
      '👩‍👩‍👧',
      '\u2028',
      '\\u0041',
    ];
    for (let round = 0; round < 500; round += 1) {
      const text = Array.from({ length: roll(40) }, () => alphabet[roll(alphabet.length)]).join('');
      const json = JSON.stringify({ input: text });
      // Half of the models escape everything beyond ASCII.
      const raw =
        round % 2
          ? json
          : json.replace(
              /[\u0080-\uffff]/g,
              (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
            );
      const pieces: string[] = [];
      for (let at = 0; at < raw.length;) {
        const length = 1 + roll(7);
        pieces.push(raw.slice(at, at + length));
        at += length;
      }
      const { deltas, text: out } = read(...pieces);
      expect(out).toBe(text);
      for (const delta of deltas) expect(isWhole(delta)).toBe(true);
    }
  });

  it.each([
    ['raw line breaks, which JSON forbids', '{"input":"a\nb"}', 'a\nb'],
    ['an escape that JSON does not know', '{"input":"a\\qb\\u12"}', 'aqb\\u12"}'],
    ['other fields after the text', '{"input":"a","more":1}', 'a'],
    ['other fields before the text', '{"more":1,"input":"a"}', 'a'],
    ['another name for the only field', '{"patch":"a"}', 'a'],
    ['an object for the text', '{"input":{"a":1}}', '{"a":1}'],
    ['a bare JSON string', '"a\\n"', 'a\n'],
    ['the bare text', '*** Begin Patch', '*** Begin Patch'],
    ['fields that say nothing', '{"a":"x","b":"y"}', '{"a":"x","b":"y"}'],
    ['a JSON number', '7', '7'],
    ['a very long opening', `{${' '.repeat(80)}"input":"a"}`, 'a'],
    ['nothing at all', '', ''],
    ['a text that was cut', '{"input":"abc', 'abc'],
    ['a cut in an escape', '{"input":"abc\\u00', 'abc'],
  ])('takes %s', (_what, raw, text) => {
    expect(read(...raw).text).toBe(text);
    expect(read(raw).text).toBe(text);
  });

  it('a lone half of a character comes out as it went in', () => {
    expect(read('{"input":"a\\ud83d', 'b"}').text).toBe('a\ud83db');
    expect(read('{"input":"a\\ud83d').text).toBe('a\ud83d');
    expect(wholeText('{"input":"\\ud83d"}')).toBe('\ud83d');
  });
});
