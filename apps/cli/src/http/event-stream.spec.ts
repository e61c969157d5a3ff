import { streamItems } from './event-stream.js';

async function read(...chunks: (string | Buffer)[]) {
  const lines: string[] = [];
  let done = false;
  async function* bytes() {
    for (const chunk of chunks) yield Buffer.from(chunk as string);
  }
  for await (const item of streamItems(bytes())) {
    if (item.kind === 'done') done = true;
    else lines.push(item.text);
  }
  return { lines, done };
}

describe('the log stream', () => {
  test('one line per data line; comments, ids and other fields are ignored', async () => {
    expect(
      await read(': hi\n\nid: 1\ndata: one\n\nretry: 5\nevent: line\ndata: two\n\nevent: done\ndata: {}\n\n'),
    ).toEqual({ lines: ['one', 'two'], done: true });
  });

  test('empty lines count, blanks at the start of a line stay, the blank behind the colon may lack', async () => {
    expect(await read('data: \n\ndata:   in\n\ndata:x\n\nevent:done\n\n')).toEqual({
      lines: ['', '  in', 'x'],
      done: true,
    });
  });

  test('several data lines of one event are several log lines', async () => {
    expect(await read('data: a\ndata: b\n\nevent: done\n')).toEqual({ lines: ['a', 'b'], done: true });
  });

  test('every cut of the bytes gives the same, inside letters too, and with CRLF', async () => {
    const bytes = Buffer.from('data: привет 🎉\r\n\r\ndata: b\r\n\r\nevent: done\r\n\r\n');
    for (let at = 0; at <= bytes.length; at++)
      expect(await read(bytes.subarray(0, at), bytes.subarray(at))).toEqual({
        lines: ['привет 🎉', 'b'],
        done: true,
      });
  });

  test('half a line at a cut is not given out, and the end is not called done', async () => {
    expect(await read('data: a\n\ndata: hal')).toEqual({ lines: ['a'], done: false });
  });

  test('nothing behind done is read', async () => {
    expect(await read('event: done\ndata: {}\n\ndata: late\n\n')).toEqual({ lines: [], done: true });
  });
});
