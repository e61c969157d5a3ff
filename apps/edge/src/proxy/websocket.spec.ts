import { createHash } from 'node:crypto';
import { type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { type Duplex } from 'node:stream';
import { Agent, WebSocket } from 'undici';
import {
  artifact,
  ask,
  backend,
  Cleanup,
  freePort,
  raw,
  replicas,
  serving,
  staticTarget,
  until,
} from '../../test/kit.js';
import { type AccessEntry } from '../index.js';

const host = 'shop.apps.localhost';
const cleanup = new Cleanup();
afterEach(() => cleanup.run());

/** The server's side of RFC 6455, as far as an echo of short texts needs it. */
function echo(req: IncomingMessage, socket: Duplex): void {
  const accept = createHash('sha1')
    .update(`${req.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64');
  socket.on('error', () => undefined);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  let held = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    held = Buffer.concat([held, chunk]);
    while (held.length >= 6 && held.length >= 6 + (held[1]! & 0x7f)) {
      const length = held[1]! & 0x7f;
      const mask = held.subarray(2, 6);
      const text = Buffer.from(held.subarray(6, 6 + length).map((byte, i) => byte ^ mask[i % 4]!));
      socket.write(Buffer.concat([Buffer.from([held[0]!, length]), text]));
      if ((held[0]! & 0x0f) === 8) socket.end();
      held = held.subarray(6 + length);
    }
  });
}

describe('proxy: WebSockets', () => {
  const dial = (port: number): WebSocket => {
    const dispatcher = new Agent({
      connect: { lookup: (_name, _options, done) => done(null, [{ address: '127.0.0.1', family: 4 }]) },
    });
    cleanup.add(() => dispatcher.destroy());
    return new WebSocket(`ws://${host}:${port}/chat?room=1`, { dispatcher });
  };

  it('a real client talks through the edge, and both ends see the close', async () => {
    let request: IncomingMessage | undefined;
    let closed = false;
    const app = await backend(cleanup, (_req, res) => res.end());
    app.server.on('upgrade', (req, socket) => {
      request = req;
      socket.on('close', () => (closed = true));
      echo(req, socket);
    });
    const access: AccessEntry[] = [];
    const { port } = await serving(cleanup, replicas(app.port), { onAccess: (entry) => access.push(entry) });
    const socket = dial(port);
    await new Promise(
      (resolve, reject) => (
        socket.addEventListener('open', resolve),
        socket.addEventListener('error', reject)
      ),
    );
    for (const text of ['one', 'два', 'three'.repeat(20)]) {
      const reply = new Promise((resolve) =>
        socket.addEventListener('message', ({ data }) => resolve(data), { once: true }),
      );
      socket.send(text);
      expect(await reply).toBe(text);
    }
    expect(request?.url).toBe('/chat?room=1');
    expect(request?.headers['x-forwarded-for']).toBe('127.0.0.1');
    expect(request?.headers.host).toBe(`${host}:${port}`);
    const ended = new Promise((resolve) => socket.addEventListener('close', resolve));
    socket.close();
    await ended;
    await until(() => closed && access.length === 1);
    expect(access[0]).toMatchObject({ status: 101, kind: 'replicas', path: '/chat' });
  });

  const handshake = (more = ''): string =>
    `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n${more}\r\n`;

  it('a refusal of the app is passed on; failures have pages; static sites answer plainly', async () => {
    const app = await backend(cleanup, (_req, res) =>
      res.writeHead(401, { 'x-why': 'token' }).end('who are you'),
    );
    const { port, plane, edge } = await serving(cleanup, replicas(app.port));
    const refused = await raw(port, handshake());
    expect(refused).toMatch(/^HTTP\/1\.1 401 /);
    expect(refused).toContain('who are you');
    plane.route(host, replicas(await freePort()));
    await edge.refresh();
    expect(await raw(port, handshake())).toMatch(/^HTTP\/1\.1 502 [\s\S]*app_unreachable/);
    plane.route(host, { kind: 'none', reason: 'off' });
    await edge.refresh();
    expect(await raw(port, handshake())).toMatch(/^HTTP\/1\.1 503 /);
    const site = await artifact({ 'index.html': 'home' });
    plane.keep(site);
    plane.route(host, staticTarget(site));
    await until(async () => (await ask(port, '/')).text === 'home');
    expect(await raw(port, handshake())).toMatch(/^HTTP\/1\.1 200 [\s\S]*home$/);
    expect(await raw(port, handshake(`Host: ${host}\r\n`))).toMatch(/^HTTP\/1\.1 400 /);
    expect(await raw(port, handshake().replace(host, 'nobody.org'))).toMatch(/^HTTP\/1\.1 404 /);
  });

  it('bytes sent along with the handshake arrive, and a dead replica is passed over', async () => {
    let first = '';
    const app = await backend(cleanup, (_req, res) => res.end());
    app.server.on('upgrade', (_req, socket, head) => {
      first += head.toString();
      socket.on('error', () => undefined);
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHELLO',
      );
      socket.on('data', (chunk: Buffer) => (first += chunk.toString()));
    });
    const { port } = await serving(cleanup, replicas(await freePort(), app.port));
    const answer = await raw(port, `${handshake()}EARLY`);
    expect(answer).toMatch(/^HTTP\/1\.1 101 [\s\S]*HELLO$/);
    expect(first).toBe('EARLY');
  });

  it('an open WebSocket does not hold up the stop for longer than the grace', async () => {
    const app = await backend(cleanup, (_req, res) => res.end());
    app.server.on('upgrade', echo);
    const { port, edge } = await serving(cleanup, replicas(app.port));
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined).write(handshake());
    await new Promise((resolve) => socket.once('data', resolve));
    const began = performance.now();
    await edge.stop();
    expect(performance.now() - began).toBeLessThan(2_000);
  });
});
