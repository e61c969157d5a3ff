import { cutUp, randomFrom, readAnswer } from '../test/read.js';
import { answerLimits } from './index.js';

const bytes = (text: string): Buffer => Buffer.from(text, 'latin1');
const whole = (text: string, isHead = false) => readAnswer([bytes(text)], isHead);
const H = 'HTTP/1.1 200 OK\r\n';

describe('answers, octet by octet', () => {
  it.each<[name: string, text: string, body: string, isKept: boolean, isHead?: boolean]>([
    ['a length', `${H}Content-Length: 3\r\n\r\nabc`, 'abc', true],
    ['a length of nothing', `${H}Content-Length: 0\r\n\r\n`, '', true],
    [
      'chunks',
      `${H}Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n`,
      'abc0123456789',
      true,
    ],
    ['extensions', `${H}transfer-encoding: chunked\r\n\r\n1;a;b=c;d="e;\\"f"\r\nx\r\n0;z\r\n\r\n`, 'x', true],
    ['until the end', `${H}\r\nabc`, 'abc', false],
    ['until the end, of nothing', `${H}\r\n`, '', false],
    ['to HEAD', `${H}Content-Length: 5\r\n\r\n`, '', true, true],
    ['to HEAD, of chunks', `${H}Transfer-Encoding: chunked\r\n\r\n`, '', true, true],
    ['204', 'HTTP/1.1 204 No Content\r\n\r\n', '', true],
    ['304 with a length', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n', '', true],
    ['no reason', 'HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na', 'a', true],
    ['no reason, no space', 'HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na', 'a', true],
    ['a status that nobody knows', 'HTTP/1.1 799 Odd\r\nContent-Length: 1\r\n\r\na', 'a', true],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na', 'a', false],
    ['HTTP/1.0, kept', 'HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na', 'a', true],
    [
      'HTTP/1.0 with chunks',
      'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n',
      'a',
      false,
    ],
    ['close', `${H}Connection: close\r\nContent-Length: 1\r\n\r\na`, 'a', false],
    ['close in a list', `${H}Connection: X-A , Close\r\nContent-Length: 1\r\n\r\na`, 'a', false],
    [
      'close wins',
      `${H}Connection: close\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na`,
      'a',
      false,
    ],
  ])('%s', (_name, text, body, isKept, isHead = false) => {
    const expected = { ok: true, rest: 0, isKept, answer: { body } };
    expect(whole(text, isHead)).toMatchObject(expected);
    // One octet at a time.
    expect(
      readAnswer(
        [...bytes(text)].map((octet) => Buffer.from([octet])),
        isHead,
      ),
    ).toMatchObject(expected);
  });

  it('fields keep order, case, doubles and octets beyond ASCII; white space around values goes', () => {
    const text = `HTTP/1.1 200 Gut\xe4\r\nB: 2\r\na:\t x \t y\t \r\nB:\r\nX-\u00fc: no\r\n\r\n`;
    expect(whole(text)).toMatchObject({ ok: false });
    const read = whole(text.replace('X-\xfc', 'x').replace(': no', ': \xfc'));
    expect(read).toMatchObject({
      answer: { reason: 'Gut\xe4', fields: ['B', '2', 'a', 'x \t y', 'B', '', 'x', '\xfc'] },
    });
  });

  it('interim answers are passed over, trailers are told', () => {
    const text = `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n${H}Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\n`;
    expect(whole(text)).toMatchObject({
      interim: [100, 103],
      answer: {
        status: 200,
        fields: ['Transfer-Encoding', 'chunked'],
        trailers: ['X-Sum', '1', 'x-sum', '2'],
      },
    });
  });

  it('says what comes behind the end', () => {
    expect(whole(`${H}Content-Length: 1\r\n\r\naHTTP`)).toMatchObject({
      ok: true,
      rest: 4,
      answer: { body: 'a' },
    });
    expect(whole('HTTP/1.1 204 x\r\n\r\nno')).toMatchObject({ ok: true, rest: 2 });
  });

  const chunked = `${H}Transfer-Encoding: chunked\r\n\r\n`;
  it.each([
    ['noise', 'SSH-2.0-OpenSSH\r\n'],
    ['noise without an end', 'SSH-2'],
    ['HTTP/2.0', 'HTTP/2.0 200 OK\r\n\r\n'],
    ['HTTP/1.2', 'HTTP/1.2 200 OK\r\n\r\n'],
    ['HTTP/0.9', 'HTTP/0.9 200 OK\r\n\r\n'],
    ['lower case', 'http/1.1 200 OK\r\n\r\n'],
    ['a line before', `\r\n${H}\r\n`],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\n\r\n'],
    ['a status below 100', 'HTTP/1.1 099 OK\r\n\r\n'],
    ['two spaces before the status', 'HTTP/1.1  200 OK\r\n\r\n'],
    ['a control in the reason', 'HTTP/1.1 200 O\x01K\r\n\r\n'],
    [
      'an upgrade that nobody asked for',
      'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    ],
    ['lines that end in LF', 'HTTP/1.1 200 OK\nA: b\n\n'],
    ['LF in a field', `${H}A: b\nC: d\r\n\r\n`],
    ['CR in a field', `${H}A: b\rC: d\r\n\r\n`],
    ['CR at the begin of a line', `${H}A: b\r\n\rC: d\r\n\r\n`],
    ['NUL in a field', `${H}A: b\0c\r\n\r\n`],
    ['a control in a field', `${H}A: b\x0bc\r\n\r\n`],
    ['DEL in a field', `${H}A: b\x7f\r\n\r\n`],
    ['a folded line', `${H}A: b\r\n c\r\n\r\n`],
    ['a folded first line', `${H} A: b\r\n\r\n`],
    ['a space before the colon', `${H}A : b\r\n\r\n`],
    ['no name', `${H}: b\r\n\r\n`],
    ['no colon', `${H}nonsense\r\n\r\n`],
    ['octets beyond ASCII in a name', `${H}\xc4: b\r\n\r\n`],
    ['two lengths', `${H}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`],
    ['the same length twice', `${H}Content-Length: 1\r\ncontent-length: 1\r\n\r\na`],
    ['a list of lengths', `${H}Content-Length: 1, 1\r\n\r\na`],
    ['no length', `${H}Content-Length:\r\n\r\n`],
    ['a signed length', `${H}Content-Length: +1\r\n\r\na`],
    ['a negative length', `${H}Content-Length: -1\r\n\r\na`],
    ['a hexadecimal length', `${H}Content-Length: 0x1\r\n\r\na`],
    ['a huge length', `${H}Content-Length: 18446744073709551617\r\n\r\na`],
    ['length and chunks', `${H}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['chunks and length', `${H}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`],
    ['gzip, chunked', `${H}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['identity', `${H}Transfer-Encoding: identity\r\n\r\n`],
    ['chunked twice', `${H}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['xchunked', `${H}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`],
    ['no size of a chunk', `${chunked}\r\nabc\r\n0\r\n\r\n`],
    ['a size that is none', `${chunked}zz\r\nabc\r\n0\r\n\r\n`],
    ['a size of 0x', `${chunked}0x3\r\nabc\r\n0\r\n\r\n`],
    ['a negative size', `${chunked}-1\r\nabc\r\n0\r\n\r\n`],
    ['a space after the size', `${chunked}3 \r\nabc\r\n0\r\n\r\n`],
    ['a space before the size', `${chunked} 3\r\nabc\r\n0\r\n\r\n`],
    ['a size beyond all numbers', `${chunked}fffffffffffffffff\r\nabc`],
    ['a size that ends in LF', `${chunked}3\nabc\r\n0\r\n\r\n`],
    ['a size that ends in CR', `${chunked}3\rabc\r\n0\r\n\r\n`],
    ['a chunk longer than its size', `${chunked}1\r\nabc\r\n0\r\n\r\n`],
    ['a chunk that ends in LF', `${chunked}3\r\nabc\n0\r\n\r\n`],
    ['a chunk that ends in CR', `${chunked}3\r\nabc\r0\r\n\r\n`],
    ['an extension with a control', `${chunked}3;a\x01\r\nabc\r\n0\r\n\r\n`],
    ['an extension with LF', `${chunked}3;a\nabc\r\n0\r\n\r\n`],
    ['an extension without a name', `${chunked}3;=b\r\nabc\r\n0\r\n\r\n`],
    ['an open quotation', `${chunked}3;a="b\r\nabc\r\n0\r\n\r\n`],
    ['a trailer with a length', `${chunked}0\r\nContent-Length: 3\r\n\r\n`],
    ['a trailer with a coding', `${chunked}0\r\nTransfer-Encoding: chunked\r\n\r\n`],
    ['a folded trailer', `${chunked}0\r\nA: b\r\n c\r\n\r\n`],
    ['no end of interim answers', 'HTTP/1.1 100 x\r\n\r\n'.repeat(40)],
  ])('%s is refused', (_name, text) => {
    expect(whole(text)).toMatchObject({ ok: false, code: 'HTTP1_PROTOCOL' });
    const random = randomFrom(text.length);
    for (let turn = 0; turn < 5; turn += 1)
      expect(readAnswer(cutUp(bytes(text), random))).toMatchObject({ ok: false, code: 'HTTP1_PROTOCOL' });
  });

  it.each([
    ['before the head', ''],
    ['in the status line', 'HTTP/1.1 2'],
    ['in the head', `${H}A: b\r\n`],
    ['in the body', `${H}Content-Length: 3\r\n\r\nab`],
    ['in the size of a chunk', `${chunked}3`],
    ['in a chunk', `${chunked}3\r\nab`],
    ['before the last chunk', `${chunked}3\r\nabc\r\n`],
    ['in the trailers', `${chunked}0\r\nA: b\r\n`],
    ['after an interim answer', 'HTTP/1.1 100 Continue\r\n\r\n'],
  ])('an end %s is none', (_name, text) =>
    expect(whole(text)).toMatchObject({ ok: false, code: 'HTTP1_CLOSED' }),
  );

  it('limits: the head, the fields, the trailers, the extensions; also in small pieces', () => {
    const limits = { ...answerLimits, headBytes: 1_000, fields: 10, extensionBytes: 100 };
    const refused = (text: string) => {
      for (const size of [1, 7, text.length]) {
        const pieces: Buffer[] = [];
        for (let at = 0; at < text.length; at += size) pieces.push(bytes(text.slice(at, at + size)));
        expect(readAnswer(pieces, false, limits)).toMatchObject({ ok: false, code: 'HTTP1_PROTOCOL' });
      }
    };
    const fits = 'a'.repeat(1_000 - `${H}A: \r\n\r\n`.length);
    expect(readAnswer([bytes(`${H}A: ${fits}\r\n\r\n`)], false, limits).ok).toBe(true);
    refused(`${H}A: ${fits}a\r\n\r\n`);
    refused(`${H}A: ${'a'.repeat(5_000)}`);
    expect(readAnswer([bytes(`${H}${'A: b\r\n'.repeat(10)}\r\n`)], false, limits).ok).toBe(true);
    refused(`${H}${'A: b\r\n'.repeat(11)}\r\n`);
    refused(`${chunked}0\r\n${'A: b\r\n'.repeat(11)}\r\n`);
    refused(`${chunked}0\r\nA: ${'a'.repeat(1_000)}\r\n\r\n`);
    expect(readAnswer([bytes(`${chunked}1;${'a'.repeat(99)}\r\nx\r\n0\r\n\r\n`)], false, limits).ok).toBe(
      true,
    );
    refused(`${chunked}${`1;${'a'.repeat(30)}\r\nx\r\n`.repeat(5)}0\r\n\r\n`);
  });

  it('one parser reads one answer after the other, and nothing is left of a broken one', () => {
    // A connection is not used again after a broken answer; the next head must still not be seen in what was held.
    const text = `${chunked}3\r\nabc\r\n0\r\nA: b\r\n\r\n`;
    for (const pieces of [[bytes(text)], [...bytes(text)].map((octet) => Buffer.from([octet]))])
      expect(readAnswer(pieces)).toMatchObject({ ok: true, answer: { body: 'abc', trailers: ['A', 'b'] } });
  });
});
