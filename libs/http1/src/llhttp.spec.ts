import http from 'node:http';
import { Duplex } from 'node:stream';
import { cutUp, type Outcome, randomFrom, readAnswer } from '../test/read.js';

/** How many answers are compared: `npm run proof -- answers` sets it to the full size. */
const answers = Number(process.env['NEBO_PROOF'] ?? 6_000);
const seed = Number(process.env['NEBO_SEED'] ?? 20_261_121);

/** What the client of node:http, whose parser is llhttp, makes of the same pieces. */
function byNode(pieces: readonly Buffer[], isHead: boolean): Promise<Outcome> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
    const refuse = (error: NodeJS.ErrnoException): void => {
      resolve({ ok: false, code: error.code ?? 'none', message: error.message });
      socket.destroy();
    };
    const interim: number[] = [];
    const request = http.request({
      method: isHead ? 'HEAD' : 'GET',
      createConnection: () => socket,
      maxHeaderSize: 64 * 1024,
      headers: { host: 'x' },
    });
    request.on('information', ({ statusCode }) => interim.push(statusCode));
    request.on('error', refuse);
    request.on('response', (answer) => {
      let body = '';
      answer.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
      answer.on('error', refuse);
      answer.on('end', () => {
        const {
          statusCode: status = 0,
          statusMessage: reason = '',
          rawHeaders: fields,
          rawTrailers,
        } = answer;
        resolve({
          ok: true,
          answer: { status, reason, fields, body, trailers: rawTrailers },
          interim,
          rest: 0,
          isKept: request.shouldKeepAlive,
        });
        socket.destroy();
      });
    });
    request.end();
    setImmediate(() => {
      for (const piece of pieces) socket.push(Buffer.from(piece));
      socket.push(null);
    });
  });
}

/** Where more is refused than by llhttp: all of it is forbidden, or means nothing here. */
const stricter = new Set([
  'there is a transfer coding other than chunked',
  'the reason has an octet that it may not have',
  'the status is none',
  'the answer is not one of HTTP/1',
  'the extension of a chunk is malformed',
  'a trailer says how long the body is',
  'a line ends in LF alone',
]);

type Random = (below: number) => number;
const pick = <T>(random: Random, of: readonly T[]): T => of[random(of.length)]!;

/** An answer that is right by RFC 9112, mostly. */
function compose(random: Random): Buffer {
  const interim = random(8) === 0 ? 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n' : '';
  const status = pick(random, [
    '200 OK',
    '200 OK',
    '404 Not Found',
    '204 No Content',
    '304 Not Modified',
    '500 \xe4',
    '201 ',
  ]);
  const fields = Array.from({ length: random(5) }, (_, n) =>
    pick(random, [
      `X-${n}: a b`,
      'Set-Cookie: a=1',
      'set-cookie:b=\xfc; c',
      'Vary:',
      'Date: \t now \t',
      'Connection: close',
      'Connection: keep-alive',
      'Keep-Alive: timeout=5',
      'Connection: x, Close',
    ]),
  );
  const body = pick(random, [
    '',
    'a',
    'hello\r\n\r\nworld',
    '\x00\xff\r\n',
    'x'.repeat(random(300)),
    '0\r\n\r\n',
    'HTTP/1.1 200 OK\r\n\r\n',
  ]);
  let end = '';
  switch (random(4)) {
    case 0:
      fields.push(`${pick(random, ['Content-Length', 'content-length'])}: ${body.length}`);
      end = body;
      break;
    case 1: {
      fields.push(`Transfer-Encoding: ${pick(random, ['chunked', 'Chunked'])}`);
      for (let at = 0; at < body.length;) {
        const chunk = body.slice(at, at + 1 + random(40));
        const size = chunk.length.toString(16);
        end += `${pick(random, [size, size.toUpperCase(), `0${size}`])}${pick(random, ['', '', '', ';a=b', ';a', ';a="b c"'])}\r\n${chunk}\r\n`;
        at += chunk.length;
      }
      end += `0\r\n${pick(random, ['', '', 'X-Sum: 1\r\n', 'A: b\r\nA: c\r\n'])}\r\n`;
      break;
    }
    default:
      end = random(2) === 0 ? body : '';
      if (end === '') fields.push('Content-Length: 0');
  }
  const lines = [...fields].sort(() => random(3) - 1);
  return Buffer.from(
    `${interim}HTTP/1.${pick(random, ['1', '1', '1', '0'])} ${status}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n${end}`,
    'latin1',
  );
}

const pieces = [
  '\r',
  '\n',
  '\r\n',
  ' ',
  '\t',
  ':',
  ';',
  ',',
  '\0',
  '\x0b',
  '\x7f',
  '\xff',
  '0',
  '1',
  'a',
  'G',
  '-',
  '+',
  '"',
  '=',
  'Content-Length: 3\r\n',
  'Content-Length: 0\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'HTTP/1.1 100 Continue\r\n\r\n',
  ' folded\r\n',
  'chunked',
];

/** Takes out, puts in, doubles or changes something. */
function mutate(bytes: Buffer, random: Random): Buffer {
  let text = bytes.toString('latin1');
  for (let turn = random(3); turn >= 0; turn -= 1) {
    // Mostly in the head, where there is more to get wrong.
    const at = random(
      random(3) === 0 ? text.length + 1 : Math.min(text.length, text.indexOf('\r\n\r\n') + 12) + 1,
    );
    const line = text.indexOf('\r\n', at) + 2;
    switch (random(5)) {
      case 0:
        text = text.slice(0, at) + text.slice(at + 1 + random(3));
        break;
      case 1:
        text = text.slice(0, at) + String.fromCharCode(random(256)) + text.slice(at + 1);
        break;
      case 2:
        text = text.slice(0, line) + pick(random, pieces) + text.slice(line);
        break;
      case 3:
        text = text.slice(0, at) + pick(random, pieces) + text.slice(at);
        break;
      default:
        text = text.slice(0, at);
    }
  }
  return Buffer.from(text, 'latin1');
}

describe('the parser beside llhttp', () => {
  it(
    `${answers} answers, right and mutated, in pieces`,
    async () => {
      const random = randomFrom(seed);
      const counts = { both: 0, neither: 0, stricter: 0 };
      for (let turn = 0; turn < answers; turn += 1) {
        const isRight = turn % 3 === 0;
        const made = compose(random);
        const bytes = isRight ? made : mutate(made, random);
        const isHead = random(10) === 0;
        const cut = cutUp(bytes, random);
        const ours = readAnswer(cut, isHead);
        // What comes behind an answer that is whole takes nothing from it; llhttp reads on, and a connection here is not used again.
        const upTo = ours.ok ? bytes.length - ours.rest : bytes.length;
        const theirs = await byNode(upTo < bytes.length ? [bytes.subarray(0, upTo)] : cut, isHead);
        const what = JSON.stringify({ bytes: bytes.toString('latin1'), isHead, ours, theirs });
        if (ours.ok) {
          // What llhttp refuses is refused here.
          if (!theirs.ok) throw new Error(`more lenient: ${what}`);
          // What both take is the same, octet by octet.
          if (JSON.stringify([ours.answer, ours.interim]) !== JSON.stringify([theirs.answer, theirs.interim]))
            throw new Error(`different: ${what}`);
          counts.both += 1;
        } else if (theirs.ok) {
          if (isRight || !stricter.has(ours.message)) throw new Error(`refuses what is right: ${what}`);
          counts.stricter += 1;
        } else counts.neither += 1;
      }
      // There was something to compare of each kind.
      expect(counts.both).toBeGreaterThan(answers / 3);
      expect(counts.neither).toBeGreaterThan(answers / 10);
    },
    60_000 + answers,
  );
});
