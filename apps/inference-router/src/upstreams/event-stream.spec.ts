import { fed } from '../../test/golden.js';
import { readerFor } from './event-stream.js';
import type { UpstreamError } from './upstream-error.js';

type Part = string | Buffer;

/** The data of all events of a body, read by read. */
function read(parts: readonly Part[], type = 'text/event-stream'): string[][] {
  const reader = readerFor(type);
  const batches = parts.map((part) => (reader.isOver ? [] : fed(reader, Buffer.from(part as string))));
  if (!reader.isOver) batches.push(reader.end());
  return batches.filter((events) => events.length > 0).map((events) => events.map(({ data }) => data));
}

describe('the events of an answer', () => {
  it.each<[string, Part[], string[][]]>([
    ['that come together, together', ['data: 1\n\ndata: 2\n\n', 'data: 3\n\n'], [['1', '2'], ['3']]],
    ['cut in the middle of a line', ['da', 'ta: {"a"', ':1}\n', '\n'], [['{"a":1}']]],
    ['with CRLF, CR, and without the blank', ['data:1\r\n\r\ndata: 2\r\rdata:3\n\n'], [['1', '2', '3']]],
    ['after a byte order mark', ['\ufeffdata: 1\n\n'], [['1']]],
    [
      'between comments and other fields',
      [': x\n\nid: 7\nevent: message\nretry: 5\ndata: 1\n\n:\n\n'],
      [['1']],
    ],
    ['of several lines', ['data: {\ndata: "a":1}\n\n'], [['{\n"a":1}']]],
    ['without data', ['data:\n\ndata: \n\nevent: x\n\ndata: 1\n\n'], [['1']]],
    ['without the last blank line', ['data: 1\n\ndata: 2'], [['1'], ['2']]],
    ['up to [DONE] and no further', ['data: 1\n\ndata: [DONE]\n\ndata: 2\n\n', 'data: 3\n\n'], [['1']]],
    ['of an empty answer', [''], []],
    [
      'with a character in four reads',
      [...Buffer.from('data: 🙂\n\n')].map((byte) => Buffer.of(byte)),
      [['🙂']],
    ],
  ])('%s', (_what, parts, batches) => {
    expect(read(parts)).toEqual(batches);
  });

  it('of a host that answers plainly are one, with the message as its delta', () => {
    const plain = {
      choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }],
      usage: { a: 1 },
    };
    const text = JSON.stringify(plain);
    const [[data]] = read([text.slice(0, 9), text.slice(9)], 'application/json') as [[string]];
    expect(JSON.parse(data)).toMatchObject({
      choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }],
      usage: { a: 1 },
    });
    expect(read(['{"base_resp":{"status_code":1008}}'], 'application/json')).toEqual([
      ['{"base_resp":{"status_code":1008}}'],
    ]);
  });

  it.each<[string, Part[], string]>([
    ['a plain answer that is no JSON', ['<html>'], 'application/json'],
    ['an event without end', [`data: ${'x'.repeat(33 * 1024 * 1024)}`], 'text/event-stream'],
    ['a plain answer without end', [Buffer.alloc(33 * 1024 * 1024, 120)], 'application/json'],
  ])('%s is trouble', (_what, parts, type) => {
    let trouble: UpstreamError | undefined;
    try {
      for (const batch of read(parts, type)) for (const data of batch) JSON.parse(data);
    } catch (error) {
      trouble = error as UpstreamError;
    }
    expect(trouble).toMatchObject({ trouble: 'broken' });
  });
});
