import { createHash, randomBytes } from 'node:crypto';
import { type ClientHttp2Session } from 'node:http2';
import { buffer } from 'node:stream/consumers';
import { brotliDecompressSync } from 'node:zlib';
import { Registry } from 'prom-client';
import { compileRouting } from '@nebo/routing';
import { type AccessEntry } from '../index.js';
import {
  artifact,
  backend,
  Cleanup,
  ControlPlane,
  freePort,
  replicas,
  type Running,
  startEdge,
  staticTarget,
  tcp,
  until,
} from '../../test/kit.js';
import {
  ask2,
  DATA,
  END_HEADERS,
  field,
  frame,
  getBlock,
  h2,
  head,
  HEADERS,
  RawH2,
  RST_STREAM,
} from '../../test/h2.js';

const cleanup = new Cleanup();
const own = new Cleanup();
const plane = new ControlPlane();
const registry = new Registry();
const access: AccessEntry[] = [];
let run: Running;
let session: ClientHttp2Session;
let seen: { headers: string[]; body: string; whole: boolean }[] = [];
const page = '<h1>home</h1>'.repeat(200);

beforeAll(async () => {
  const app = await backend(cleanup, (req, res) => {
    const hash = createHash('sha256');
    const one = { headers: req.rawHeaders, body: '', whole: false };
    seen.push(one);
    req.on('data', (chunk: Buffer) => hash.update(chunk));
    req.on('error', () => undefined);
    req.on('end', () => {
      one.whole = true;
      one.body = hash.digest('hex');
      if (req.url === '/trailers') {
        res.writeHead(200, { trailer: 'grpc-status, set-cookie' });
        res.write('message');
        res.addTrailers({ 'grpc-status': '0', 'set-cookie': 'no=1' });
        return res.end();
      }
      if (req.url === '/stream') return void res.writeHead(200).write('first');
      res.writeHead(418, 'Short and stout', [
        ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-Hop', '1', 'Connection', 'close, X-Hop'],
        ...['Keep-Alive', 'timeout=9', 'Proxy-Connection', 'x', 'X-Kept', 'yes'],
      ]);
      res.end(`${req.method} ${req.url}`);
    });
  });
  const site = await artifact({ 'index.html': page, '404.html': 'lost', 'ten.txt': '0123456789' });
  plane.keep(site);
  plane.route('shop.apps.localhost', replicas(app.port));
  plane.route('dead.apps.localhost', replicas(await freePort()));
  plane.route('off.apps.localhost', { kind: 'none', reason: 'Paused.' });
  plane.route('shop.example.org', replicas(app.port));
  const { routing } = compileRouting(
    'nebo.json',
    JSON.stringify({
      redirects: [{ source: '/old', destination: '/new' }],
      headers: [{ source: '/(.*)', headers: [{ key: 'X-Rule', value: 'yes' }] }],
    }),
  );
  plane.route('site.apps.localhost', staticTarget(site), { routing });
  run = await startEdge(cleanup, plane, { registry, onAccess: (entry) => access.push(entry) });
  await until(() => run.edge.status().hosts === 5 && run.edge.status().pending.length === 0);
  session = await h2(cleanup, run.tlsPort);
});
beforeEach(() => {
  seen = [];
  access.length = 0;
});
afterEach(() => own.run());
afterAll(() => cleanup.run());

describe('HTTP/2: messages', () => {
  it('passes bodies and headers through, without those of a connection in either direction', async () => {
    const body = randomBytes(1_000_000);
    const answer = await ask2(
      session,
      '/a%2Fb?x=%20',
      {
        ':method': 'PATCH',
        cookie: ['a=1', 'b=2'],
        'x-forwarded-for': '1.2.3.4',
        'x-nebo-account': 'root',
        te: 'trailers',
        'x-twice': '1',
      },
      body,
    );
    expect([answer.status, answer.text]).toEqual([418, 'PATCH /a%2Fb?x=%20']);
    expect(answer.headers['set-cookie']).toEqual(['a=1', 'b=2']);
    expect(answer.headers['x-kept']).toBe('yes');
    for (const name of [
      'connection',
      'keep-alive',
      'transfer-encoding',
      'proxy-connection',
      'x-hop',
      'upgrade',
    ])
      expect([name, answer.headers[name]]).toEqual([name, undefined]);
    const [{ headers, body: digest }] = seen as [(typeof seen)[0]];
    expect(digest).toBe(createHash('sha256').update(body).digest('hex'));
    const all = (name: string) =>
      headers.filter((_, i) => i % 2 === 1 && headers[i - 1]!.toLowerCase() === name);
    expect(all('host')).toEqual([`shop.apps.localhost:${run.tlsPort}`]);
    expect(all('cookie')).toEqual(['a=1; b=2']);
    expect(all('x-forwarded-proto')).toEqual(['https']);
    expect(all('x-forwarded-for')).toEqual(['127.0.0.1']);
    expect(all('transfer-encoding')).toEqual(['chunked']);
    expect([all('te'), all('x-nebo-account')]).toEqual([[], []]);
    expect(headers.some((name, i) => i % 2 === 0 && name.startsWith(':'))).toBe(false);
    await until(() => access.length === 1);
    expect(access[0]).toMatchObject({
      protocol: 'h2',
      status: 418,
      secure: true,
      remote: '127.0.0.1',
      bytes: 18,
    });
    expect(await registry.metrics()).toContain(
      'nebo_edge_requests_total{kind="replicas",status="418",protocol="h2"} 1',
    );
  });

  it('trailers of an app arrive, but none that would change the answer', async () => {
    const answer = await ask2(session, '/trailers');
    expect([answer.status, answer.text]).toEqual([200, 'message']);
    expect(Object.entries(answer.trailers)).toEqual([['grpc-status', '0']]);
  });

  it('many requests at a time on one connection, each with its own answer', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => ask2(session, `/${i}`)));
    expect(answers.map(({ text }) => text)).toEqual(Array.from({ length: 100 }, (_, i) => `GET /${i}`));
  });

  it('serves files: compressed, by tag, by range, with the rules of the site', async () => {
    const files = await h2(own, run.tlsPort, 'site.apps.localhost');
    await until(
      async () => (await ask2(files, '/', { 'accept-encoding': 'br' })).headers['content-encoding'] === 'br',
    );
    const packed = await ask2(files, '/', { 'accept-encoding': 'br' });
    expect(brotliDecompressSync(packed.body).toString()).toBe(page);
    expect(packed.headers['x-rule']).toBe('yes');
    const { status, text, headers } = await ask2(files, '/', {
      'accept-encoding': 'br',
      'if-none-match': packed.headers.etag!,
    });
    expect([status, text, headers['x-rule']]).toEqual([304, '', 'yes']);
    const part = await ask2(files, '/ten.txt', { range: 'bytes=2-4' });
    expect([part.status, part.text, part.headers['content-range']]).toEqual([206, '234', 'bytes 2-4/10']);
    const moved = await ask2(files, '/old');
    expect([moved.status, moved.headers.location]).toEqual([308, '/new']);
    const lost = await ask2(files, '/nothing');
    expect([lost.status, lost.text]).toEqual([404, 'lost']);
    const headed = await ask2(files, '/ten.txt', { ':method': 'HEAD' });
    expect([headed.status, headed.headers['content-length'], headed.text]).toEqual([200, '10', '']);
    expect((await ask2(files, '/ten.txt', { ':method': 'POST' }, 'x')).status).toBe(405);
  });

  it('answers of the edge itself, without fields of a connection', async () => {
    for (const [name, status, code] of [
      ['dead.apps.localhost', 502, 'app_unreachable'],
      ['off.apps.localhost', 503, 'app_not_running'],
      ['nobody.apps.localhost', 404, 'unknown_host'],
    ] as const) {
      const other = await h2(own, run.tlsPort, name);
      const answer = await ask2(other, '/', { ':method': 'POST' }, 'x');
      expect([name, answer.status, answer.text]).toEqual([name, status, expect.stringContaining(code)]);
      expect(answer.headers.connection).toBeUndefined();
      // A body that was left unread ends its stream only.
      expect((await ask2(other, '/')).status).toBe(status);
    }
  });

  it.each<[string, Record<string, string | string[]>, number, string]>([
    [
      'a Host that is not the authority',
      { ':authority': 'shop.apps.localhost', host: 'off.apps.localhost' },
      400,
      'bad_host',
    ],
    ['an authority without a name', { ':authority': 'a..b' }, 400, 'bad_host'],
    ['a byte over 127 in the target', { ':path': '/caf\u00e9' }, 400, 'bad_request_target'],
    ['the wrong scheme', { ':scheme': 'http' }, 400, 'bad_request_target'],
    [
      'a name the certificate does not have',
      { ':authority': 'shop.example.org' },
      421,
      'misdirected_request',
    ],
    ['a name below the wildcard', { ':authority': 'a.shop.apps.localhost' }, 421, 'misdirected_request'],
    ['an address', { ':authority': '127.0.0.1' }, 421, 'misdirected_request'],
    ['headers of 17 KB', { 'x-long': 'a'.repeat(17_000) }, 431, 'headers_too_large'],
    [
      '101 headers',
      Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`x-${i}`, '1'])),
      431,
      'too_many_headers',
    ],
  ])('%s is refused, and the connection goes on', async (_name, headers, status, code) => {
    const answer = await ask2(session, '/', headers);
    expect([answer.status, answer.text]).toEqual([status, expect.stringContaining(code)]);
    expect(seen).toEqual([]);
    expect((await ask2(session, '/alive')).text).toBe('GET /alive');
  });

  it('a connection is good for every name of its certificate', async () => {
    const answer = await ask2(session, '/ten.txt', { ':authority': 'SITE.apps.localhost' });
    expect([answer.status, answer.text]).toEqual([200, '0123456789']);
    const same = await ask2(session, '/x', {
      ':authority': 'shop.apps.localhost',
      host: 'SHOP.apps.localhost',
    });
    expect(same.text).toBe('GET /x');
  });

  it('CONNECT is no proxy, and opens nothing but WebSockets', async () => {
    const authority = { ':authority': 'shop.apps.localhost', ':method': 'CONNECT' };
    const plain = session.request(authority);
    expect((await head(plain))[':status']).toBe(405);
    plain.resume();
    const other = await ask2(session, '/', { ...authority, ':protocol': 'connect-udp', ':scheme': 'https' });
    expect(other.status).toBe(501);
  });
});

describe('HTTP/2: streams', () => {
  it('passes what comes on as it comes, and a client that leaves ends the work behind', async () => {
    let closed = 0;
    const app = await backend(own, (_req, res) => {
      res.on('close', () => closed++);
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.flushHeaders();
      setTimeout(() => res.write('data: 1\n\n'), 50);
    });
    plane.route('events.apps.localhost', replicas(app.port));
    await run.edge.refresh();
    const stream = session.request({ ':path': '/', ':authority': 'events.apps.localhost' });
    expect((await head(stream))['content-type']).toBe('text/event-stream');
    const first = await new Promise<Buffer>((resolve) => stream.once('data', resolve));
    expect(first.toString()).toBe('data: 1\n\n');
    stream.on('error', () => undefined).close();
    await until(() => closed === 1);
    expect((await ask2(session, '/alive')).status).toBe(418);
  });

  it('an upload that is cut off never looks whole to the app', async () => {
    const raw = await RawH2.open(own, run.tlsPort);
    const block = getBlock().subarray(field(':method', 'GET').length);
    raw.socket.write(
      Buffer.concat([
        frame(HEADERS, END_HEADERS, 1, Buffer.concat([field(':method', 'POST'), block])),
        frame(DATA, 0, 1, Buffer.alloc(10_000, 'x')),
      ]),
    );
    await until(() => seen.length === 1);
    raw.socket.write(frame(RST_STREAM, 0, 1, Buffer.from([0, 0, 0, 8])));
    await until(async () => (await ask2(session, '/next')).status === 418);
    expect(seen[0]!.whole).toBe(false);
  });

  it('an answer that breaks off is no whole one', async () => {
    const port = await tcp(own, (socket) => {
      socket.once('data', () =>
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n', () =>
          setTimeout(() => socket.destroy(), 30),
        ),
      );
    });
    plane.route('breaks.apps.localhost', replicas(port));
    await run.edge.refresh();
    const stream = session.request({ ':path': '/', ':authority': 'breaks.apps.localhost' });
    await head(stream);
    await expect(buffer(stream)).rejects.toThrow();
    expect(stream.rstCode).toBe(2);
  });

  it('a large answer waits for a slow reader', async () => {
    let written = 0;
    const app = await backend(own, (_req, res) => {
      const chunk = Buffer.alloc(65_536);
      const fill = (): void => {
        while (written < 100_000_000) {
          written += chunk.length;
          if (!res.write(chunk)) return void res.once('drain', fill);
        }
        res.end();
      };
      fill();
    });
    plane.route('large.apps.localhost', replicas(app.port));
    await run.edge.refresh();
    const stream = session.request({ ':path': '/', ':authority': 'large.apps.localhost' });
    await head(stream);
    stream.pause();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(written).toBeLessThan(40_000_000);
    stream.on('error', () => undefined).close();
  });
});
