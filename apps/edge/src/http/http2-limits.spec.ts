import { createHash, X509Certificate } from 'node:crypto';
import { type Duplex } from 'node:stream';
import tls from 'node:tls';
import { join } from 'node:path';
import { type CertificateBytes } from '@nebo/contracts';
import { backend, Cleanup, ControlPlane, replicas, type Running, startEdge, until } from '../../test/kit.js';
import {
  ask2,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  field,
  frame,
  getBlock,
  h2,
  head,
  HEADERS,
  RawH2,
  RST_STREAM,
  SETTINGS,
} from '../../test/h2.js';
import { LocalCa } from '../index.js';

const cleanup = new Cleanup();
let run: Running;
let plane: ControlPlane;
let reached: string[] = [];
let fields: string[] = [];
let appPort = 0;

async function start(tuning = {}, more = {}): Promise<void> {
  plane = new ControlPlane();
  const app = await backend(cleanup, (req, res) => {
    reached.push(req.url!);
    fields = req.rawHeaders;
    req.on('error', () => undefined);
    if (req.url!.startsWith('/wait')) return void setTimeout(() => res.end('waited'), 400);
    if (req.url === '/silent') return;
    res.end('ok');
  });
  app.server.on('upgrade', (req, socket: Duplex) => {
    socket.on('error', () => undefined);
    if (req.url === '/refused') return void socket.end('HTTP/1.1 401 No\r\nContent-Length: 3\r\n\r\nwho');
    const digest = createHash('sha1').update(
      `${req.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`,
    );
    const accept = req.url === '/wrong' ? 'wrong' : digest.digest('base64');
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        `Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    socket.pipe(socket);
  });
  appPort = app.port;
  plane.route('shop.apps.localhost', replicas(appPort));
  run = await startEdge(cleanup, plane, { tuning, ...more });
  await until(() => run.edge.status().hosts === 1);
}
beforeEach(() => void (reached = []));
afterEach(() => cleanup.run());

const get = (stream: number): Buffer => frame(HEADERS, END_HEADERS | END_STREAM, stream, getBlock());
/** Every error but "nothing is wrong". */
const thrownOut = (raw: RawH2): boolean => raw.closed || raw.goneWith().some((code) => code !== 0);
/** Another client is served all the while. */
const alive = async (): Promise<void> =>
  expect((await ask2(await h2(cleanup, run.tlsPort), '/')).text).toBe('ok');

describe('HTTP/2: abuse', () => {
  it('resets without end close the connection (rapid reset)', async () => {
    await start({ http2ResetBurst: 50, http2ResetRate: 5 });
    const raw = await RawH2.open(cleanup, run.tlsPort);
    for (let i = 0; i < 400 && !thrownOut(raw); i++) {
      const stream = 2 * i + 1;
      raw.socket.write(Buffer.concat([get(stream), frame(RST_STREAM, 0, stream, Buffer.from([0, 0, 0, 8]))]));
      if (i % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await until(() => thrownOut(raw));
    expect(reached.length).toBeLessThan(200);
    await alive();
  });

  it('a head without end closes the connection (CONTINUATION)', async () => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    raw.socket.write(frame(HEADERS, END_STREAM, 1, getBlock()));
    for (let i = 0; i < 200 && !thrownOut(raw); i++) {
      raw.socket.write(frame(CONTINUATION, 0, 1, field(`x-${i}`, 'a'.repeat(100))));
      if (i % 20 === 19) await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await until(() => thrownOut(raw));
    expect(reached).toEqual([]);
    await alive();
  });

  it('a head of more than is kept is refused before it is whole', async () => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    const long = Buffer.concat(Array.from({ length: 130 }, (_, i) => field(`x-${i}`, 'a'.repeat(110))));
    raw.socket.write(
      Buffer.concat([
        frame(HEADERS, END_STREAM, 1, Buffer.concat([getBlock(), long.subarray(0, 100 * 117)])),
        frame(CONTINUATION, 0, 1, long.subarray(100 * 117)),
        ...Array.from({ length: 2 }, () => frame(CONTINUATION, 0, 1, long)),
        frame(CONTINUATION, END_HEADERS, 1, field('x-end', '1')),
      ]),
    );
    await until(() => raw.resets(1).length > 0 || thrownOut(raw));
    expect(reached).toEqual([]);
    await alive();
  });

  it('settings without end close the connection', async () => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    // Not read, so that the answers to them pile up.
    raw.socket.pause();
    const many = Buffer.concat(Array.from({ length: 2_000 }, () => frame(SETTINGS, 0, 0)));
    for (let i = 0; i < 40; i++) raw.socket.write(many);
    await new Promise((resolve) => setTimeout(resolve, 100));
    raw.socket.resume();
    await until(() => thrownOut(raw));
    await alive();
  });

  it('more requests at a time than agreed are refused, those within are served', async () => {
    await start({ http2Streams: 5 });
    const raw = await RawH2.open(cleanup, run.tlsPort);
    await until(() => raw.frames().some(({ type, flags }) => type === SETTINGS && flags === 1));
    const waiting = Buffer.concat([
      field(':method', 'GET'),
      field(':scheme', 'https'),
      field(':authority', 'shop.apps.localhost'),
      field(':path', '/wait'),
    ]);
    raw.socket.write(
      Buffer.concat(
        Array.from({ length: 7 }, (_, i) => frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, waiting)),
      ),
    );
    await until(
      () => raw.frames().filter(({ type, flags }) => type === DATA && flags & END_STREAM).length === 5,
    );
    expect(reached).toHaveLength(5);
    expect([...raw.resets(11), ...raw.resets(13)].length + raw.goneWith().length).toBeGreaterThan(0);
  });

  it.each([
    ['a field of a connection', field('connection', 'keep-alive')],
    ['a transfer coding', field('transfer-encoding', 'chunked')],
    ['an upgrade', field('upgrade', 'h2c')],
    ['a name in capitals', field('X-Upper', '1')],
    ['a pseudo field after others', Buffer.concat([field('x-a', '1'), field(':path', '/b')])],
    ['an unknown pseudo field', field(':status', '200')],
    ['two paths', field(':path', '/b')],
    ['two authorities', field(':authority', 'b')],
    ['another length than the body has', field('content-length', '5')],
    ['te of more than trailers', field('te', 'gzip')],
  ])('%s is no request', async (_name, bytes) => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    raw.socket.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, getBlock(bytes)));
    await until(() => raw.resets(1).length > 0 || thrownOut(raw));
    expect(reached).toEqual([]);
  });

  it('a value with a line break or NUL never arrives', async () => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    const bad = [field('x-a', 'a\r\nX-B: b'), field('x-c', 'a\0b'), field('x-kept', '1')];
    raw.socket.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, getBlock(...bad)));
    await until(() => reached.length === 1);
    expect(fields.filter((name) => /^x-(a|b|c|kept)$/i.test(name))).toEqual(['x-kept']);
  });

  it('two Hosts, and a length twice, are refused', async () => {
    await start();
    const raw = await RawH2.open(cleanup, run.tlsPort);
    const hosts = [field('host', 'shop.apps.localhost'), field('host', 'shop.apps.localhost')];
    raw.socket.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, getBlock(...hosts)));
    const lengths = [field('content-length', '1'), field('content-length', '2')];
    raw.socket.write(frame(HEADERS, END_HEADERS, 3, getBlock(...lengths)));
    const over = (stream: number) =>
      raw.resets(stream).length > 0 ||
      raw
        .frames()
        .some((one) => one.type === DATA && one.stream === stream && one.payload.includes('bad_host'));
    await until(() => over(1) && over(3));
    expect(reached).toEqual([]);
  });

  it('a connection on which nothing moves is closed, one that waits for an app is not', async () => {
    await start({ keepAliveMs: 300 });
    const raw = await RawH2.open(cleanup, run.tlsPort);
    const busy = await h2(cleanup, run.tlsPort);
    const waits = ask2(busy, '/wait');
    await until(() => raw.closed);
    expect((await waits).text).toBe('waited');
  });

  it('a head that does not go on is not waited for without end', async () => {
    await start({ keepAliveMs: 300 });
    const raw = await RawH2.open(cleanup, run.tlsPort);
    raw.socket.write(frame(HEADERS, END_STREAM, 1, getBlock()));
    await until(() => raw.closed);
    expect(reached).toEqual([]);
  });
});

describe('HTTP/2: WebSockets (RFC 8441)', () => {
  const opening = (path: string) => ({
    ':method': 'CONNECT',
    ':protocol': 'websocket',
    ':scheme': 'https',
    ':path': path,
    ':authority': 'shop.apps.localhost',
    'sec-websocket-version': '13',
    'sec-websocket-protocol': 'chat',
  });

  it('go both ways, and end on both sides', async () => {
    await start();
    const session = await h2(cleanup, run.tlsPort);
    await until(() => session.remoteSettings.enableConnectProtocol === true);
    const stream = session.request(opening('/chat'), { endStream: false });
    const fields = await head(stream);
    expect([fields[':status'], fields['sec-websocket-protocol']]).toEqual([200, 'chat']);
    expect([fields['sec-websocket-accept'], fields.upgrade, fields.connection]).toEqual(
      Array(3).fill(undefined),
    );
    for (const text of ['one', 'two']) {
      const echoed = new Promise<Buffer>((resolve) => stream.once('data', resolve));
      stream.write(text);
      expect((await echoed).toString()).toBe(text);
    }
    stream.end();
    await new Promise((resolve) => stream.once('close', resolve));
    expect((await ask2(session, '/')).text).toBe('ok');
  });

  it('a refusal is passed on, a wrong confirmation is none', async () => {
    await start();
    const session = await h2(cleanup, run.tlsPort);
    const refused = await ask2(session, '/refused', opening('/refused'), '');
    expect([refused.status, refused.text]).toEqual([401, 'who']);
    expect((await ask2(session, '/wrong', opening('/wrong'), '')).status).toBe(502);
    expect((await ask2(session, '/x', { ...opening('/x'), ':authority': 'other.org' }, '')).status).toBe(421);
  });
});

describe('HTTP/2: ends of connections', () => {
  it('a stop answers what is under way and takes nothing new', async () => {
    await start({ stopGraceMs: 5_000 });
    const session = await h2(cleanup, run.tlsPort);
    const gone = new Promise<number>((resolve) => session.once('goaway', resolve));
    const waits = ask2(session, '/wait');
    await until(() => reached.length === 1);
    const stopped = run.edge.stop();
    expect(await gone).toBe(0);
    expect((await waits).text).toBe('waited');
    await stopped;
    expect(session.destroyed || session.closed).toBe(true);
  });

  it('a stop cuts what does not end', async () => {
    await start({ stopGraceMs: 200 });
    const session = await h2(cleanup, run.tlsPort);
    const silent = ask2(session, '/silent').catch((error: Error) => error);
    await until(() => reached.length === 1);
    await run.edge.stop();
    expect(await silent).toBeInstanceOf(Error);
  });

  it('a new certificate: connections with the old one end after what is under way', async () => {
    await start();
    const ca = new LocalCa(join(await cleanup.folder(), 'ca'), 'apps.localhost');
    const { cert: chain, key } = await ca.certificate('shop.apps.localhost');
    const fingerprint = new X509Certificate(chain).fingerprint256.replaceAll(':', '').toLowerCase();
    const bytes: CertificateBytes = { id: 'one', fingerprint, chain, key };
    Object.assign(plane, { fetchCertificate: () => Promise.resolve(bytes) });
    const old = await h2(cleanup, run.tlsPort);
    const gone = new Promise<number>((resolve) => old.once('goaway', resolve));
    const waits = ask2(old, '/wait');
    await until(() => reached.length === 1);
    plane.route('shop.apps.localhost', replicas(appPort), { certificate: { id: 'one', fingerprint } });
    expect(await gone).toBe(0);
    expect((await waits).text).toBe('waited');
    const socket = tls.connect({
      host: '127.0.0.1',
      port: run.tlsPort,
      servername: 'shop.apps.localhost',
      rejectUnauthorized: false,
    });
    cleanup.add(() => socket.destroy());
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    expect(socket.getPeerX509Certificate()?.fingerprint256.replaceAll(':', '').toLowerCase()).toBe(
      fingerprint,
    );
  });
});
