import { connect } from 'node:net';
import {
  artifact,
  ask,
  backend,
  Cleanup,
  ControlPlane,
  pause,
  raw,
  replicas,
  type Running,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';
import { parseHost } from './host.js';

const H = 'Host: shop.apps.localhost\r\n';
const many = (n: number): string => Array.from({ length: n }, (_, i) => `X-${i}: 1\r\n`).join('');

/** What comes in as bytes and the status that goes out; the first six groups are those that Node itself answers 200. */
const corpus: [name: string, bytes: string, status: number][] = [
  ['duplicate Host', `GET / HTTP/1.1\r\n${H}Host: other.apps.localhost\r\n\r\n`, 400],
  ['the same Host twice', `GET / HTTP/1.1\r\n${H}${H}\r\n`, 400],
  ['empty Host', 'GET / HTTP/1.1\r\nHost:\r\n\r\n', 400],
  ['blank Host', 'GET / HTTP/1.1\r\nHost:   \r\n\r\n', 400],
  ['Host with userinfo', 'GET / HTTP/1.1\r\nHost: a@shop.apps.localhost\r\n\r\n', 400],
  ['Host with a space', 'GET / HTTP/1.1\r\nHost: shop apps\r\n\r\n', 400],
  ['Host with a path', 'GET / HTTP/1.1\r\nHost: shop.apps.localhost/x\r\n\r\n', 400],
  ['Host with a comma', 'GET / HTTP/1.1\r\nHost: shop.apps.localhost, b\r\n\r\n', 400],
  ['Host with a bad port', 'GET / HTTP/1.1\r\nHost: shop.apps.localhost:99999\r\n\r\n', 400],
  ['Host with an empty port', 'GET / HTTP/1.1\r\nHost: shop.apps.localhost:\r\n\r\n', 400],
  ['Host with two dots', 'GET / HTTP/1.1\r\nHost: shop..apps.localhost\r\n\r\n', 400],
  ['Host of 300 letters', `GET / HTTP/1.1\r\nHost: ${'a'.repeat(300)}\r\n\r\n`, 400],
  ['a wildcard as Host', 'GET / HTTP/1.1\r\nHost: *.apps.localhost\r\n\r\n', 400],
  ['Host in Latin-1', 'GET / HTTP/1.1\r\nHost: sh\xf6p\r\n\r\n', 400],
  ['absolute form of another host', `GET http://other.apps.localhost/ HTTP/1.1\r\n${H}\r\n`, 400],
  ['absolute form of another port', `GET http://shop.apps.localhost:81/ HTTP/1.1\r\n${H}\r\n`, 400],
  ['absolute form with userinfo', `GET http://a@shop.apps.localhost/ HTTP/1.1\r\n${H}\r\n`, 400],
  [
    'absolute form with https on the plain port',
    `GET https://shop.apps.localhost/ HTTP/1.1\r\n${H}\r\n`,
    400,
  ],
  ['absolute form of another scheme', `GET ftp://shop.apps.localhost/ HTTP/1.1\r\n${H}\r\n`, 400],
  ['TE on HTTP/1.0', `POST / HTTP/1.0\r\n${H}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
  ['101 headers', `GET / HTTP/1.1\r\n${H}${many(100)}\r\n`, 431],
  ['1,500 headers', `GET / HTTP/1.1\r\n${H}${many(1500)}\r\n`, 431],
  ['no Host', 'GET / HTTP/1.1\r\n\r\n', 400],
  ['no Host on HTTP/1.0', 'GET / HTTP/1.0\r\n\r\n', 400],
  ['HTTP/0.9', 'GET /\r\n\r\n', 505],
  ['HTTP/1.2', `GET / HTTP/1.2\r\n${H}\r\n`, 400],
  ['an HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
  [
    'CL and TE',
    `POST / HTTP/1.1\r\n${H}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    400,
  ],
  [
    'TE and CL',
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n`,
    400,
  ],
  ['two CL', `POST / HTTP/1.1\r\n${H}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd`, 400],
  ['two equal CL', `POST / HTTP/1.1\r\n${H}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`, 400],
  ['CL list', `POST / HTTP/1.1\r\n${H}Content-Length: 3, 3\r\n\r\nabc`, 400],
  ['signed CL', `POST / HTTP/1.1\r\n${H}Content-Length: +1\r\n\r\na`, 400],
  ['negative CL', `POST / HTTP/1.1\r\n${H}Content-Length: -1\r\n\r\n`, 400],
  ['hex CL', `POST / HTTP/1.1\r\n${H}Content-Length: 0x1\r\n\r\na`, 400],
  ['huge CL', `POST / HTTP/1.1\r\n${H}Content-Length: 99999999999999999999999\r\n\r\n`, 400],
  [
    'TE not ending in chunked',
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
    400,
  ],
  ['TE gzip, chunked', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, 400],
  ['TE twice chunked', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n`, 400],
  [
    'two TE',
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    400,
  ],
  ['TE xchunked', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`, 400],
  ['TE "chunked"', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n`, 400],
  ['TE identity', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: identity\r\n\r\n`, 400],
  ['TE with a vertical tab', `POST / HTTP/1.1\r\n${H}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n`, 400],
  ['space before the colon', `GET / HTTP/1.1\r\n${H}X-A : 1\r\n\r\n`, 400],
  [
    'TE with space before the colon',
    `POST / HTTP/1.1\r\n${H}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`,
    400,
  ],
  ['obs-fold', `GET / HTTP/1.1\r\n${H}X-A: 1\r\n 2\r\n\r\n`, 400],
  ['a space before the first header', `GET / HTTP/1.1\r\n ${H}\r\n`, 400],
  ['bare LF', `GET / HTTP/1.1\nHost: shop.apps.localhost\n\n`, 400],
  ['bare LF in a header', `GET / HTTP/1.1\r\n${H}X-A: 1\nX-B: 2\r\n\r\n`, 400],
  ['bare CR', `GET / HTTP/1.1\r\n${H}X-A: 1\rX-B: 2\r\n\r\n`, 400],
  ['NUL in a value', `GET / HTTP/1.1\r\n${H}X-A: a\0b\r\n\r\n`, 400],
  ['an empty header name', `GET / HTTP/1.1\r\n${H}: 1\r\n\r\n`, 400],
  ['a header without colon', `GET / HTTP/1.1\r\n${H}nonsense\r\n\r\n`, 400],
  ['a tab in the request line', `GET\t/ HTTP/1.1\r\n${H}\r\n`, 400],
  ['a target without slash', `GET foo HTTP/1.1\r\n${H}\r\n`, 400],
  ['a fragment in the target', `GET /a#b HTTP/1.1\r\n${H}\r\n`, 400],
  ['a byte over 127 in the target', `GET /\xff HTTP/1.1\r\n${H}\r\n`, 400],
  ['OPTIONS *', `OPTIONS * HTTP/1.1\r\n${H}\r\n`, 400],
  ['lower-case method', `get / HTTP/1.1\r\n${H}\r\n`, 400],
  ['unknown method', `NEBO / HTTP/1.1\r\n${H}\r\n`, 400],
  ['CONNECT', `CONNECT shop.apps.localhost:443 HTTP/1.1\r\n${H}\r\n`, 405],
  ['headers of 17 KB', `GET / HTTP/1.1\r\n${H}X-A: ${'a'.repeat(17_000)}\r\n\r\n`, 431],
  ['a target of 17 KB', `GET /${'a'.repeat(17_000)} HTTP/1.1\r\n${H}\r\n`, 431],
  ['an unknown expectation', `POST / HTTP/1.1\r\n${H}Expect: wonders\r\nContent-Length: 0\r\n\r\n`, 417],
  ['TLS on the plain port', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400],
  ['noise', '\x00\x01\x02\x03\r\n\r\n', 400],
];

describe('refusals, byte by byte', () => {
  const cleanup = new Cleanup();
  let run: Running;
  let reached = 0;

  beforeAll(async () => {
    const plane = new ControlPlane();
    const site = await artifact({ 'index.html': 'home' });
    plane.keep(site);
    plane.route('static.apps.localhost', staticTarget(site));
    const app = await backend(cleanup, (req, res) => {
      reached++;
      req.resume().on('end', () => res.end(`app ${req.url}`));
    });
    plane.route('shop.apps.localhost', replicas(app.port));
    run = await startEdge(cleanup, plane, { tuning: { headersTimeoutMs: 400 } });
    await until(() => run.edge.status().hosts === 2 && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  it.each(corpus)('%s', async (_name, bytes, status) => {
    // With a connection to the app at hand, a smuggled request would reach it before the client's connection is closed.
    await ask(run.port, '/warm');
    reached = 0;
    // A second request hidden behind the first must not be answered either.
    const smuggled = `GET /smuggled HTTP/1.1\r\n${H}\r\n`;
    const answer = await raw(run.port, bytes + smuggled);
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer.match(/^HTTP\/1\.1 /gm)).toHaveLength(1);
    expect(answer).toMatch(/connection: close/i);
    const body = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as {
      error: { code: string; message: string };
    };
    expect(body.error.code).toMatch(/^[a-z_]+$/);
    expect(body.error.message.length).toBeGreaterThan(10);
    expect(answer).not.toMatch(/node|undici|HPE_|at .*\.js|\/work\//i);
    await pause(30);
    expect(reached).toBe(0);
  });

  it.each([
    [
      'absolute form that agrees',
      `GET http://shop.apps.localhost/a?b HTTP/1.1\r\n${H}Connection: close\r\n\r\n`,
      'app /a?b',
    ],
    [
      'absolute form without path',
      `GET http://SHOP.apps.localhost?b HTTP/1.1\r\n${H}Connection: close\r\n\r\n`,
      'app /?b',
    ],
    [
      'absolute form with the port of Host',
      'GET http://shop.apps.localhost:8080/ HTTP/1.1\r\nHost: shop.apps.localhost:8080\r\nConnection: close\r\n\r\n',
      'app /',
    ],
    [
      'Host in capitals with dot and port',
      'GET /x HTTP/1.1\r\nHost: SHOP.Apps.Localhost.:8080\r\nConnection: close\r\n\r\n',
      'app /x',
    ],
    ['HTTP/1.0 with Host', `GET /x HTTP/1.0\r\n${H}\r\n`, 'app /x'],
    ['100 headers', `GET /x HTTP/1.1\r\n${H}${many(98)}Connection: close\r\n\r\n`, 'app /x'],
    ['a request line with two spaces', `GET  /x HTTP/1.1\r\n${H}Connection: close\r\n\r\n`, 'app /x'],
    ['an empty line before', `\r\nGET /x HTTP/1.1\r\n${H}Connection: close\r\n\r\n`, 'app /x'],
    [
      'chunked in capitals',
      `POST /x HTTP/1.1\r\n${H}Transfer-Encoding: CHUNKED\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n\r\n`,
      'app /x',
    ],
  ])('%s is served', async (_name, bytes, body) => {
    const answer = await raw(run.port, bytes);
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).toContain(body);
  });

  it('answers pipelined requests in order, each once', async () => {
    const one = (n: number): string => `GET /${n} HTTP/1.1\r\n${H}\r\n`;
    const answer = await raw(
      run.port,
      one(1) + one(2) + one(3) + `GET /4 HTTP/1.1\r\n${H}Connection: close\r\n\r\n`,
    );
    expect(answer.match(/app \/\d/g)).toEqual(['app /1', 'app /2', 'app /3', 'app /4']);
  });

  it.each([
    ['a bad chunk size', 'zz\r\nabc\r\n0\r\n\r\n'],
    ['a bare LF in the chunks', '3\nabc\n0\n\n'],
    ['a chunk longer than its size', '1\r\nabc\r\n0\r\n\r\n'],
    ['chunk extensions of 20 KB', `3;${'x'.repeat(20_000)}\r\nabc\r\n0\r\n\r\n`],
  ])('%s never gives a second answer', async (_name, chunks) => {
    const answer = await raw(
      run.port,
      `POST / HTTP/1.1\r\n${H}Transfer-Encoding: chunked\r\n\r\n${chunks}GET /smuggled HTTP/1.1\r\n${H}\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 (400|413) /);
    expect(answer.match(/HTTP\/1\.1 \d/g)).toHaveLength(1);
    expect(answer).not.toContain('/smuggled');
  });

  it('an unknown name is a neutral 404, whatever it is', async () => {
    for (const host of [
      'nobody.apps.localhost',
      'apps.localhost',
      'localhost',
      '127.0.0.1',
      '[::1]',
      'a.shop.apps.localhost',
      'example.org',
    ]) {
      const answer = await ask(run.port, '/', { host });
      expect([
        host,
        answer.status,
        (JSON.parse(answer.text) as { error: { code: string } }).error.code,
      ]).toEqual([host, 404, 'unknown_host']);
      expect(answer.text).not.toContain(host);
    }
  });

  it('pages for browsers, JSON for others', async () => {
    const page = await ask(run.port, '/', {
      host: 'nobody.org',
      headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' },
    });
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(page.text).toContain('<h1>404 Not Found</h1>');
    for (const accept of ['application/json', '*/*', 'text/html;q=0.5, application/json']) {
      const answer = await ask(run.port, '/', { host: 'nobody.org', headers: { accept } });
      expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
      expect((JSON.parse(answer.text) as { error: { request_id: string } }).error.request_id).toBe(
        answer.headers['x-request-id'],
      );
    }
  });

  it('a head that does not arrive is 408 with a body', async () => {
    const answer = await raw(run.port, 'GET / HTTP/1.1\r\nHost: shop', 3_000);
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toContain('"request_timeout"');
  });

  it('2,500 mutated requests crash nothing', async () => {
    const seeds = corpus.map(([, bytes]) => bytes);
    let state = 7;
    const random = (n: number): number => (state = (state * 1_103_515_245 + 12_345) & 0x7fffffff) % n;
    for (let round = 0; round < 50; round++) {
      const parts: Buffer[] = [];
      for (let i = 0; i < 50; i++) {
        const bytes = Buffer.from(seeds[random(seeds.length)]!.slice(0, 400), 'latin1');
        for (let k = random(4); k >= 0; k--) bytes[random(bytes.length)] = random(256);
        parts.push(bytes);
      }
      await Promise.all(
        parts.map(
          (bytes) =>
            new Promise<void>((resolve) => {
              const socket = connect(run.port, '127.0.0.1', () => socket.end(bytes));
              socket
                .on('error', () => undefined)
                .on('close', () => resolve())
                .resume();
              setTimeout(() => socket.destroy(), 150).unref();
            }),
        ),
      );
    }
    await pause(50);
    expect((await ask(run.port, '/alive')).text).toBe('app /alive');
    expect((await ask(run.port, '/', { host: 'static.apps.localhost' })).text).toBe('home');
  });
});

describe('host names', () => {
  it.each([
    ['a', 'a', null],
    ['A.B.:80', 'a.b', 80],
    ['[::1]:8080', '[::1]', 8080],
    ['127.0.0.1', '127.0.0.1', null],
    ['xn--e1afmkfd.xn--p1ai', 'xn--e1afmkfd.xn--p1ai', null],
    ['my_app.local', 'my_app.local', null],
  ])('%s', (value, host, port) => expect(parseHost(value)).toEqual({ host, port }));

  it.each([
    '',
    '.',
    ':80',
    'a:',
    'a:0',
    'a:x',
    '[::1',
    'a..b',
    '-a',
    'a-',
    'a b',
    'a\tb',
    'a%00',
    '[x]',
    'a/b',
    'a?b',
    'a\\b',
  ])('%j is none', (value) => expect(parseHost(value)).toBeNull());
});
