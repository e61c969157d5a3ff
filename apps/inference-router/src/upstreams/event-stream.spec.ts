import { readEvents } from './event-stream.js';
import type { UpstreamError } from './upstream.js';

type Part = string | Buffer | Error | 'never';

/** The data of all events of a body, batch by batch. */
async function read(
  parts: readonly Part[],
  options: { type?: string; idle?: number } = {},
): Promise<string[][]> {
  let stop: (error: Error) => void = () => undefined;
  const never = new Promise<never>((_, reject) => (stop = reject));
  never.catch(() => undefined);
  async function* body() {
    for (const part of parts) {
      if (part instanceof Error) throw part;
      if (part === 'never') await never;
      else yield Buffer.from(part as string);
    }
  }
  const batches: string[][] = [];
  const answer = { contentType: options.type ?? 'text/event-stream', body: body() };
  for await (const events of readEvents(answer, options.idle ?? 0, (reason) => stop(reason)))
    batches.push(events.map(({ data }) => data));
  return batches;
}
const failure = (parts: readonly Part[], options = {}): Promise<UpstreamError> =>
  read(parts, options).then(
    () => Promise.reject(new Error('was read')),
    (error: UpstreamError) => error,
  );

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
  ])('%s', async (_what, parts, batches) => {
    expect(await read(parts)).toEqual(batches);
  });

  it('end at [DONE], also when the connection stays open, or breaks then', async () => {
    expect(await read(['data: 1\n\n', 'data: [DONE]\n\n', 'never'])).toEqual([['1']]);
    expect(await read(['data: 1\n\n', 'data: [DONE]\n\n', new Error('reset')])).toEqual([['1']]);
  });

  it('of a host that answers plainly are one, with the message as its delta', async () => {
    const plain = {
      choices: [{ index: 0, message: { content: 'x' }, finish_reason: 'stop' }],
      usage: { a: 1 },
    };
    const text = JSON.stringify(plain);
    const [[data]] = (await read([text.slice(0, 9), text.slice(9)], { type: 'application/json' })) as [
      [string],
    ];
    expect(JSON.parse(data)).toMatchObject({
      choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }],
      usage: { a: 1 },
    });
    expect(await read(['{"base_resp":{"status_code":1008}}'], { type: 'application/json' })).toEqual([
      ['{"base_resp":{"status_code":1008}}'],
    ]);
  });

  it.each<[string, Part[], object, string]>([
    ['a broken connection', ['data: 1\n\n', new Error('reset')], {}, 'broken'],
    ['silence', ['data: 1\n\n', 'never'], { idle: 50 }, 'timeout'],
    ['silence of a plain answer', ['{', 'never'], { idle: 50, type: 'application/json' }, 'timeout'],
    ['a plain answer that is no JSON', ['<html>'], { type: 'application/json' }, 'broken'],
    ['an event without end', [`data: ${'x'.repeat(33 * 1024 * 1024)}`], {}, 'broken'],
    [
      'a plain answer without end',
      [Buffer.alloc(33 * 1024 * 1024, 120)],
      { type: 'application/json' },
      'broken',
    ],
  ])('%s is trouble', async (_what, parts, options, trouble) => {
    expect(await failure(parts, options)).toMatchObject({ trouble });
  });

  it('the time that a slow reader takes is not the silence of the upstream', async () => {
    async function* body() {
      for (const data of ['1', '2', '3']) yield Buffer.from(`data: ${data}\n\n`);
    }
    const seen: string[] = [];
    for await (const events of readEvents(
      { contentType: 'text/event-stream', body: body() },
      40,
      () => undefined,
    )) {
      seen.push(...events.map(({ data }) => data));
      await new Promise((resolve) => setTimeout(resolve, 120));
    }
    expect(seen).toEqual(['1', '2', '3']);
  });
});
