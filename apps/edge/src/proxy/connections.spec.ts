import http from 'node:http';
import { type Socket } from 'node:net';
import { Registry } from 'prom-client';
import {
  ask,
  backend,
  Cleanup,
  pause,
  raw,
  replicas,
  serving as servingOn,
  tcp as tcpOn,
  until,
} from '../../test/kit.js';
import { type AccessEntry } from '../index.js';

const host = 'shop.apps.localhost';
const cleanup = new Cleanup();
afterEach(() => cleanup.run());
const serving = (...rest: Parameters<typeof servingOn> extends [unknown, ...infer R] ? R : never) =>
  servingOn(cleanup, ...rest);
const tcp = (onConnection: Parameters<typeof tcpOn>[1]) => tcpOn(cleanup, onConnection);

describe('proxy: connections to an app', () => {
  it('one that the app has closed while idle costs no request, not even one that may not be repeated', async () => {
    const sockets: Socket[] = [];
    let requests = 0;
    const app = await tcp((socket) => {
      sockets.push(socket);
      let text = '';
      socket.on('data', (chunk: Buffer) => {
        text += chunk.toString('latin1');
        if (!text.endsWith('x')) return;
        text = '';
        requests += 1;
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    const { port } = await serving(replicas(app));
    for (let turn = 1; turn <= 6; turn += 1) {
      expect((await ask(port, '/', { method: 'POST', body: 'x' })).text).toBe('ok');
      const last = sockets.at(-1)!;
      const seen = new Promise((resolve) => last.once('close', resolve));
      if (turn % 2 === 0) last.end();
      else last.resetAndDestroy();
      await seen;
      // The packet that says so has still to be read by the edge.
      await pause(30);
    }
    expect([requests, sockets.length]).toEqual([6, 6]);
  });

  it('one that is idle for a while is used for reads, and for nothing that may not be repeated', async () => {
    let connections = 0;
    const app = await backend(cleanup, (req, res) => void req.resume().on('end', () => res.end('ok')));
    app.server.on('connection', () => connections++);
    const { port } = await serving(replicas(app.port));
    const post = () => ask(port, '/', { method: 'POST', body: 'x' });
    await ask(port, '/');
    await pause(1_000);
    await ask(port, '/');
    expect(connections).toBe(1);
    await post();
    await pause(1_000);
    await post();
    expect(connections).toBe(2);
  });

  it('an answer with more behind it reaches its client alone, and the next is that of another connection', async () => {
    let connections = 0;
    const app = await tcp((socket) => {
      connections += 1;
      socket.on('data', () =>
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmineHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison',
        ),
      );
    });
    const { port } = await serving(replicas(app));
    for (let turn = 1; turn <= 3; turn += 1) {
      expect((await ask(port, '/')).text).toBe('mine');
      expect(connections).toBe(turn);
    }
  });

  it('after an answer before the end of the upload the client’s connection goes on', async () => {
    const app = await tcp((socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n'));
    });
    const { port } = await serving(replicas(app));
    const post = (more: string) =>
      `POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 400000\r\n\r\n${'x'.repeat(400_000)}${more}`;
    const answer = await raw(
      port,
      post(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`),
      2_000,
    );
    expect(answer.match(/^HTTP\/1\.1 413 /gm)).toHaveLength(2);
  });

  it('a client that leaves in the midst of its upload is no failure of the app', async () => {
    const registry = new Registry();
    const access: AccessEntry[] = [];
    let text = '';
    let isClosed = false;
    const app = await tcp((socket) => {
      socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
      socket.on('close', () => (isClosed = true));
    });
    const { port } = await serving(replicas(app), { registry, onAccess: (entry) => access.push(entry) });
    const upload = http.request({ host: '127.0.0.1', port, method: 'POST', headers: { host }, agent: false });
    upload.on('error', () => undefined).write('part');
    await until(() => text.includes('part'));
    upload.destroy();
    await until(() => isClosed && access.length === 1);
    expect(access[0]).toMatchObject({ status: 499, aborted: true });
    // Nothing says to the app that the body was whole.
    expect(text).not.toContain('0\r\n\r\n');
    expect(await registry.metrics()).not.toMatch(/^nebo_edge_upstream_failures_total\{/m);
  });
});
