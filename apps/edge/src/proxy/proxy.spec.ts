import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { type AccessEntry } from '../index.js';
import {
  ask,
  backend,
  Cleanup,
  freePort,
  open,
  pause,
  raw,
  replicas,
  serving as servingOn,
  tcp as tcpOn,
  until,
} from '../../test/kit.js';

const host = 'shop.apps.localhost';
const cleanup = new Cleanup();
afterEach(() => cleanup.run());
const serving = (...rest: Parameters<typeof servingOn> extends [unknown, ...infer R] ? R : never) =>
  servingOn(cleanup, ...rest);
const tcp = (onConnection: Parameters<typeof tcpOn>[1]) => tcpOn(cleanup, onConnection);

describe('proxy: messages', () => {
  it('passes method, path, query, status, headers and bodies through unchanged', async () => {
    const app = await backend(cleanup, (req, res) => {
      const hash = createHash('sha256');
      req.on('data', (chunk: Buffer) => hash.update(chunk));
      req.on('end', () => {
        res.writeHead(418, 'Short and stout', [
          'Set-Cookie',
          'a=1',
          'Set-Cookie',
          'b=2',
          'X-Case',
          'Kept',
          'X-Nebo-Inner',
          'no',
          'Connection',
          'X-Hop',
          'X-Hop',
          '1',
        ]);
        res.end(`${req.method} ${req.url} ${hash.digest('hex')}`);
      });
    });
    const { port } = await serving(replicas(app.port));
    const body = randomBytes(3_000_000);
    for (const headers of [
      { 'content-length': String(body.length) },
      { 'transfer-encoding': 'chunked' },
    ] as Record<string, string>[]) {
      const answer = await ask(port, '/a/../b%2Fc?x=%20&y', { method: 'PATCH', body, headers });
      expect(answer.status).toBe(418);
      expect(answer.text).toBe(
        `PATCH /a/../b%2Fc?x=%20&y ${createHash('sha256').update(body).digest('hex')}`,
      );
      expect(answer.headers['set-cookie']).toEqual(['a=1', 'b=2']);
      expect(answer.headers['x-case']).toBe('Kept');
      expect([answer.headers['x-nebo-inner'], answer.headers['x-hop']]).toEqual([undefined, undefined]);
    }
  });

  it('strips hop-by-hop and forged headers, sets its own', async () => {
    let seen: string[] = [];
    const app = await backend(cleanup, (req, res) => {
      seen = req.rawHeaders;
      res.end();
    });
    const { port } = await serving(replicas(app.port));
    const forged = [
      'X-Forwarded-For: 1.2.3.4',
      'X-Forwarded-Proto: https',
      'X-Forwarded-Host: evil',
      'X-Forwarded-Port: 1',
      'x_forwarded_for: 6.6.6.6',
      'Forwarded: for=1.2.3.4',
      'X-Real-IP: 1.2.3.4',
      'X-Nebo-Account: root',
      'x-nebo-signature: x',
      'X-Request-Id: bad id',
      'Connection: keep-alive, X-Secret-Hop, Host, Authorization',
      'X-Secret-Hop: 1',
      'Keep-Alive: timeout=1',
      'TE: trailers',
      'Trailer: X',
      'Upgrade: h2c',
      'Proxy-Authorization: x',
      'Authorization: Bearer t',
      'Cookie: a=1',
      'Cookie: b=2',
      'X-Twice: 1',
      'X-Twice: 2',
    ];
    await raw(port, `GET / HTTP/1.1\r\nHost: Shop.apps.localhost:1234\r\n${forged.join('\r\n')}\r\n\r\n`);
    const pairs = seen.flatMap((name, i) => (i % 2 ? [] : [[name.toLowerCase(), seen[i + 1]!] as const]));
    const all = (name: string): string[] => pairs.filter(([key]) => key === name).map(([, value]) => value);
    expect(all('host')).toEqual(['Shop.apps.localhost:1234']);
    expect(all('x-forwarded-for')).toEqual(['127.0.0.1']);
    expect(all('x-forwarded-proto')).toEqual(['http']);
    expect(all('x-forwarded-host')).toEqual(['Shop.apps.localhost:1234']);
    expect(all('x-request-id')[0]).toMatch(/^[0-9a-f-]{36}$/);
    expect(all('authorization')).toEqual(['Bearer t']);
    expect(all('cookie').join('; ')).toBe('a=1; b=2');
    expect(all('x-twice').join(', ')).toBe('1, 2');
    for (const name of [
      'x-forwarded-port',
      'x_forwarded_for',
      'forwarded',
      'x-real-ip',
      'x-nebo-account',
      'x-nebo-signature',
      'x-secret-hop',
      'keep-alive',
      'te',
      'trailer',
      'upgrade',
      'proxy-authorization',
    ]) {
      expect([name, all(name)]).toEqual([name, []]);
    }
  });

  it('takes replicas in turn and keeps connections', async () => {
    const counts = [0, 0, 0];
    const apps = await Promise.all(
      counts.map((_, i) => backend(cleanup, (_req, res) => void (counts[i]!++, res.end(String(i))))),
    );
    let connections = 0;
    for (const { server } of apps) server.on('connection', () => connections++);
    const { port } = await serving(replicas(...apps.map((app) => app.port)));
    for (let i = 0; i < 30; i++) await ask(port, '/');
    expect(counts).toEqual([10, 10, 10]);
    expect(connections).toBeLessThanOrEqual(6);
  });

  it('an answer that comes before the end of the upload reaches the client', async () => {
    const app = await backend(cleanup, (req, res) => {
      res.writeHead(413, { connection: 'close' }).end('too large');
      req.on('error', () => undefined);
    });
    const { port } = await serving(replicas(app.port));
    const status = await new Promise<number>((resolve, reject) => {
      const request = http.request({
        host: '127.0.0.1',
        port,
        method: 'POST',
        path: '/',
        headers: { host, 'transfer-encoding': 'chunked' },
        agent: false,
      });
      request.on('response', (answer) => resolve(answer.statusCode!)).on('error', reject);
      request.write('x'.repeat(10_000));
    });
    expect(status).toBe(413);
  });
});

describe('proxy: streams', () => {
  it('passes events on as they come, with the head before the first', async () => {
    let send: (text: string) => void = () => undefined;
    const app = await backend(cleanup, (_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.flushHeaders();
      send = (text) => res.write(text);
    });
    const { port } = await serving(replicas(app.port));
    const answer = await open(port, '/events');
    expect(answer.headers['content-type']).toBe('text/event-stream');
    for (let i = 0; i < 5; i++) {
      const arrived = new Promise<string>((resolve) =>
        answer.once('data', (chunk: Buffer) => resolve(chunk.toString())),
      );
      send(`data: ${i}\n\n`);
      expect(await arrived).toBe(`data: ${i}\n\n`);
    }
    answer.destroy();
  });

  it('50 open streams do not make another request wait', async () => {
    const app = await backend(cleanup, (req, res) => {
      if (req.url === '/quick') return void res.end('quick');
      res.writeHead(200).write('open');
    });
    const { port } = await serving(replicas(app.port));
    const streams = await Promise.all(Array.from({ length: 50 }, () => open(port, '/stream')));
    expect((await ask(port, '/quick')).text).toBe('quick');
    streams.forEach((stream) => stream.destroy());
  });

  it('a client that leaves ends the work behind, before and after the head', async () => {
    let closed = 0;
    let arrived = 0;
    const app = await backend(cleanup, (req, res) => {
      arrived++;
      res.on('close', () => closed++);
      if (req.url === '/stream') res.writeHead(200).write('x');
    });
    const { port } = await serving(replicas(app.port));
    (await open(port, '/stream')).destroy();
    await until(() => closed === 1);
    const silent = http.request({
      host: '127.0.0.1',
      port,
      path: '/silent',
      headers: { host },
      agent: false,
    });
    silent.on('error', () => undefined).end();
    await until(() => arrived === 2);
    silent.destroy();
    await until(() => closed === 2);
    const upload = http.request({
      host: '127.0.0.1',
      port,
      path: '/upload',
      method: 'POST',
      headers: { host },
      agent: false,
    });
    upload.on('error', () => undefined).write('part');
    await until(() => arrived === 3);
    upload.destroy();
    await until(() => closed === 3);
  });

  it('a slow reader slows the app down instead of filling memory', async () => {
    let written = 0;
    const app = await backend(cleanup, (_req, res) => {
      const chunk = Buffer.alloc(65_536);
      const fill = (): void => {
        while (written < 300_000_000) {
          written += chunk.length;
          if (!res.write(chunk)) return void res.once('drain', fill);
        }
        res.end();
      };
      fill();
    });
    const { port } = await serving(replicas(app.port));
    const answer = await open(port, '/');
    answer.pause();
    await pause(600);
    const held = written;
    expect(held).toBeLessThan(60_000_000);
    await pause(200);
    expect(written - held).toBeLessThan(5_000_000);
    answer.destroy();
  });

  it('a slow app slows the upload down', async () => {
    const app = await backend(cleanup, (req) => void req.pause());
    const { port } = await serving(replicas(app.port));
    const request = http.request({
      host: '127.0.0.1',
      port,
      path: '/',
      method: 'POST',
      headers: { host },
      agent: false,
    });
    request.on('error', () => undefined);
    let sent = 0;
    const chunk = Buffer.alloc(65_536);
    const fill = (): void => {
      while (sent < 300_000_000) {
        sent += chunk.length;
        if (!request.write(chunk)) return void request.once('drain', fill);
      }
    };
    fill();
    await pause(600);
    expect(sent).toBeLessThan(60_000_000);
    request.destroy();
  });

  it('an app that dies in the midst of an answer gives a cut connection, not a whole one', async () => {
    const port = await tcp((socket) => {
      socket.once('data', () =>
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n', () =>
          setTimeout(() => socket.destroy(), 30),
        ),
      );
    });
    const run = await serving(replicas(port));
    const answer = await open(run.port, '/');
    const outcome = await new Promise<string>((resolve) => {
      answer
        .on('data', () => undefined)
        .on('end', () => resolve(answer.complete ? 'complete' : 'cut'))
        .on('error', () => resolve('cut'));
    });
    expect(outcome).toBe('cut');
  });
});

describe('proxy: failures', () => {
  it('nobody listens: 502, with and without a body, and the connection goes on', async () => {
    const { port } = await serving(replicas(await freePort()));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    cleanup.add(() => agent.destroy());
    for (const method of ['GET', 'POST']) {
      const answer = await ask(port, '/', {
        method,
        body: method === 'POST' ? 'x'.repeat(200_000) : undefined,
        agent,
      });
      expect([answer.status, answer.text]).toEqual([502, expect.stringContaining('app_unreachable')]);
      expect(answer.text).not.toMatch(/127\.0\.0\.1|ECONN/);
    }
  });

  it('a replica that refuses is passed over: reads and body-less writes are given to another', async () => {
    const bodies: string[] = [];
    const app = await backend(cleanup, (req, res) => {
      bodies.push(req.method!);
      res.end('ok');
    });
    const dead = await freePort();
    const access: AccessEntry[] = [];
    const { port, plane, edge } = await serving(replicas(dead, app.port), {
      onAccess: (entry) => access.push(entry),
    });
    for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'GET', 'GET'])
      expect((await ask(port, '/', { method })).status).toBe(200);
    await until(() => access.length === 6);
    expect(access[0]).toMatchObject({ retries: 1, replica_id: 'r1', status: 200 });
    // Rests for two seconds, so the others did not even try it.
    expect(access.slice(1).every((entry) => entry.retries === 0)).toBe(true);
    // A POST has one attempt.
    plane.route(host, replicas(await freePort(), await freePort()));
    await edge.refresh();
    expect((await ask(port, '/', { method: 'POST', body: 'x' })).status).toBe(502);
    expect(bodies.filter((method) => method === 'POST')).toEqual([]);
  });

  it('a connection that the app closes at once: reads once more, writes not', async () => {
    let connections = 0;
    const port = await tcp((socket) => {
      connections++;
      socket.once('data', () => socket.destroy());
    });
    const run = await serving(replicas(port));
    expect((await ask(run.port, '/')).status).toBe(502);
    expect(connections).toBe(2);
    expect((await ask(run.port, '/', { method: 'POST', body: 'x' })).status).toBe(502);
    expect((await ask(run.port, '/', { method: 'DELETE' })).status).toBe(502);
    expect(connections).toBe(4);
  });

  it.each([
    ['noise', 'SSH-2.0-OpenSSH\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab'],
    [
      'length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    [
      'an upgrade nobody asked for',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
    ],
    ['headers of 100 KB', `HTTP/1.1 200 OK\r\nX: ${'a'.repeat(100_000)}\r\n\r\n`],
  ])('an app that answers with %s: 502', async (_name, bytes) => {
    const port = await tcp(
      (socket) => void socket.once('data', () => socket.end(Buffer.from(bytes, 'latin1'))),
    );
    const run = await serving(replicas(port));
    const answer = await ask(run.port, '/', { headers: { accept: 'text/html' } });
    expect([answer.status, answer.headers['content-type']]).toEqual([502, 'text/html; charset=utf-8']);
  });

  it('an app that never answers: 504', async () => {
    const port = await tcp(() => undefined);
    const run = await serving(replicas(port), { tuning: { answerTimeoutMs: 300 } });
    const answer = await ask(run.port, '/');
    expect([answer.status, answer.text]).toEqual([504, expect.stringContaining('app_timeout')]);
  });
});
