import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { createServer as createTls } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { selfSigned } from '@nebo/test-kit';
import { hostileAnswers, privateHosts } from '../test/corpus.js';
import { fakeInternet, startCanaries, startOrigin, type Canaries } from '../test/world.js';
import { parseAllowList } from './policy.js';
import { startEgressProxy, type EgressEntry, type EgressOptions, type EgressProxy } from './proxy.js';

let canaries: Canaries;
let proxy: EgressProxy;
let log: EgressEntry[] = [];
beforeAll(async () => void (canaries = await startCanaries()));
afterAll(() => canaries.stop());
afterEach(async () => {
  await proxy?.stop();
  log = [];
});

const start = async (options: EgressOptions) =>
  void (proxy = await startEgressProxy({ log: (entry) => log.push(entry), ...options }));
const portOf = (at: EgressProxy) => Number(new URL(at.url!).port);

/** Sends raw text to the proxy and gives all that comes back until it closes or `until` matches. */
function raw(text: string, until?: RegExp): Promise<{ answer: string; socket: Socket }> {
  return new Promise((resolve, reject) => {
    const socket = connect(portOf(proxy), '127.0.0.1', () => socket.write(text, 'latin1'));
    let answer = '';
    socket.on('data', (data: Buffer) => {
      answer += data.toString('latin1');
      if (until?.test(answer)) resolve({ answer, socket });
    });
    socket.on('error', reject);
    socket.on('close', () => resolve({ answer, socket }));
  });
}

const tunnel = async (target: string) =>
  raw(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`, /\r\n\r\n/);

/** One plain http request through the proxy. */
function through(
  url: string,
  options: { method?: string; headers?: Record<string, string>; body?: string } = {},
): Promise<{ status: number; body: string; message: IncomingMessage }> {
  return new Promise((resolve, reject) => {
    const ask = request(
      {
        host: '127.0.0.1',
        port: portOf(proxy),
        path: url,
        method: options.method ?? 'GET',
        headers: { host: 'x', ...options.headers },
        agent: false,
      },
      (message) => {
        let body = '';
        message.on('data', (part: Buffer) => (body += part.toString()));
        message.on('end', () => resolve({ status: message.statusCode!, body, message }));
        message.on('error', reject);
      },
    );
    ask.on('error', reject);
    ask.end(options.body);
  });
}

describe('what is refused', () => {
  it('CONNECT and http to each private host of the corpus: 403 with the rule, no hit', async () => {
    await start({ connectPorts: [443, canaries.port], httpPorts: [80, canaries.port] });
    for (const host of privateHosts) {
      const { answer } = await raw(
        `CONNECT ${Buffer.from(`${host}:${canaries.port}`).toString('latin1')} HTTP/1.1\r\n\r\n`,
      );
      expect(answer).toMatch(/^HTTP\/1\.1 (403|400)/);
      const plain = await raw(
        `GET ${Buffer.from(`http://${host}:${canaries.port}/`).toString('latin1')} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
      );
      expect(plain.answer).toMatch(/^HTTP\/1\.1 (403|400)/);
    }
    expect(canaries.hits()).toBe(0);
    expect(log.every((entry) => entry.outcome === 'refused')).toBe(true);
  });

  it('names whose answers hold a private address', async () => {
    for (const answers of hostileAnswers) {
      await start({ connectPorts: [canaries.port], lookup: async () => answers });
      expect((await tunnel(`evil.example.com:${canaries.port}`)).answer).toMatch(
        /^HTTP\/1\.1 403[^]*address:/,
      );
      await proxy.stop();
    }
    expect(canaries.hits()).toBe(0);
  });

  it.each([
    'example.com',
    'example.com:',
    'user@example.com:443',
    'example.com:443/x',
    'http://example.com:443',
    ':443',
    '[::1:443',
    '*',
    'example.com:22',
    'example.com:80',
    'example.com:99999',
  ])('CONNECT %s', async (target) => {
    await start({ lookup: async () => ['93.184.215.14'] });
    expect((await tunnel(target)).answer).toMatch(/^HTTP\/1\.1 (403|400)/);
  });

  it.each([
    '/',
    '/etc/passwd',
    'https://example.com/',
    'ftp://example.com/',
    'http://example.com:8080/',
    'http://u:p@example.com/',
    'file:///etc/passwd',
  ])('GET %s', async (url) => {
    await start({ lookup: async () => ['93.184.215.14'] });
    expect(await through(url)).toMatchObject({ status: 403 });
  });

  it('says the rule in the body and in a header, and logs it', async () => {
    await start({});
    const { status, body, message } = await through('http://169.254.169.254/latest/meta-data/');
    expect({ status, body }).toEqual({
      status: 403,
      body: 'address:link_local: 169.254.169.254 is not a public address\n',
    });
    expect(message.headers['x-nebo-rule']).toBe('address:link_local');
    expect(log).toEqual([
      {
        kind: 'http',
        target: 'http://169.254.169.254/latest/meta-data/',
        outcome: 'refused',
        rule: 'address:link_local',
      },
    ]);
  });

  it('all hosts but the listed ones, when there is a list', async () => {
    const origin = await startOrigin((_request, response) => response.end('ok'));
    const { dial } = fakeInternet(() => origin.port);
    await start({
      dial,
      lookup: async () => ['93.184.215.14'],
      only: ['packages.example.org', '*.index.example'],
    });
    expect((await through('http://packages.example.org/x')).body).toBe('ok');
    expect((await through('http://files.index.example/x')).body).toBe('ok');
    for (const host of [
      'example.com',
      'index.example',
      'evilindex.example',
      'packages.example.org.evil.com',
    ]) {
      expect((await through(`http://${host}/`)).body).toMatch(/^not_listed/);
    }
    await origin.stop();
  });

  it('502 when nobody answers or the name does not exist', async () => {
    await start({
      allow: parseAllowList('127.0.0.1:1'),
      lookup: () => Promise.reject(new Error('ENOTFOUND')),
    });
    expect((await tunnel('127.0.0.1:1')).answer).toMatch(/^HTTP\/1\.1 502[^]*connect/);
    expect((await through('http://nope.example.com/')).status).toBe(502);
  });
});

describe('what passes', () => {
  it('plain http without hop-by-hop headers, with the right Host', async () => {
    let seen: IncomingMessage | undefined;
    const origin = await startOrigin((incoming, response) => {
      seen = incoming;
      let body = '';
      incoming.on('data', (part: Buffer) => (body += part.toString()));
      incoming.on('end', () =>
        response.writeHead(201, { 'x-a': 'b', 'keep-alive': 'timeout=9' }).end(body.toUpperCase()),
      );
    });
    const { dial, dialled } = fakeInternet(() => origin.port);
    await start({ dial, lookup: async () => ['93.184.215.14'] });
    const { status, body, message } = await through('http://example.com/p?q', {
      method: 'POST',
      body: 'hello',
      headers: {
        'x-keep': '1',
        'x-drop': '1',
        connection: 'x-drop, close',
        'proxy-authorization': 'Basic x',
        host: 'evil.example',
      },
    });
    expect({ status, body, a: message.headers['x-a'] }).toEqual({ status: 201, body: 'HELLO', a: 'b' });
    expect(dialled).toEqual(['93.184.215.14 80']);
    expect(seen!.url).toBe('/p?q');
    expect(seen!.headers).toMatchObject({ host: 'example.com', 'x-keep': '1' });
    expect(seen!.headers).not.toHaveProperty('x-drop');
    expect(seen!.headers).not.toHaveProperty('proxy-authorization');
    await sleep(50);
    expect(log.at(-1)).toMatchObject({ outcome: 'closed', target: 'example.com:80', sent: 5, received: 5 });
    await origin.stop();
  });

  it.each(['GET', 'DELETE', 'OPTIONS', 'HEAD', 'POST'])(
    '%s with a body in chunks stays one request',
    async (method) => {
      const seen: [method: string, url: string, body: string][] = [];
      const origin = await startOrigin((incoming, response) => {
        let body = '';
        incoming.on('data', (part: Buffer) => (body += part.toString()));
        incoming.on('end', () => {
          seen.push([incoming.method!, incoming.url!, body]);
          response.end();
        });
      });
      await start({ dial: fakeInternet(() => origin.port).dial, lookup: async () => ['93.184.215.14'] });
      const hidden = 'GET /hidden HTTP/1.1\r\nHost: other.example\r\n\r\n';
      const chunk = `${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`;
      const head = `${method} http://example.com/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`;
      const { answer } = await raw(head + chunk);
      expect(answer).toMatch(/^HTTP\/1\.1 200 /);
      expect(seen).toEqual([[method, '/x', hidden]]);
      await origin.stop();
    },
  );

  it('a TLS tunnel, end to end', async () => {
    const pair = await selfSigned(['example.com']);
    const server = createTls(pair, (_request, response) => response.end('secure'.repeat(100_000)));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { dial } = fakeInternet(() => (server.address() as { port: number }).port);
    await start({ dial, lookup: async () => ['93.184.215.14'] });
    const { answer, socket } = await tunnel('example.com:443');
    expect(answer).toMatch(/^HTTP\/1\.1 200/);
    socket.removeAllListeners('data');
    const secure = tlsConnect({ socket, servername: 'example.com', ca: pair.cert });
    secure.write('GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n');
    let text = '';
    for await (const part of secure) text += (part as Buffer).toString();
    expect(text.match(/secure/g)).toHaveLength(100_000);
    server.close();
  });

  it('to an allowed private host, and bytes sent before the answer', async () => {
    const echo = createServer((socket) => socket.pipe(socket));
    await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
    const { port } = echo.address() as { port: number };
    await start({ allow: parseAllowList(`127.0.0.1:${port}`) });
    const { socket } = await raw(`CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\nearly`, /early/);
    socket.end();
    await sleep(50);
    expect(log.at(-1)).toMatchObject({ outcome: 'closed', sent: 5, received: 5 });
    echo.close();
  });

  it('on a unix socket, which a place without network can be given', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'proxy-'));
    const path = join(folder, 's');
    await start({ listen: { path } });
    expect(proxy.url).toBeNull();
    expect(statSync(path).mode & 0o777).toBe(0o666);
    const answer = await new Promise<string>((resolve) => {
      const socket = connect(path, () => socket.write('CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n'));
      socket.on('data', (data: Buffer) => resolve(data.toString()));
    });
    expect(answer).toMatch(/^HTTP\/1\.1 403/);
    await proxy.stop();
    rmSync(folder, { recursive: true });
  });
});

describe('bounds', () => {
  async function talker(options: EgressOptions) {
    let closed = false;
    const server = createServer((socket) => {
      socket.on('error', () => undefined).on('close', () => (closed = true));
      socket.on('data', (data: Buffer) => data.toString() === 'flood' && flood(socket));
    });
    const flood = (socket: Socket) =>
      socket.destroyed || socket.write(Buffer.alloc(16_384), () => flood(socket));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    await start({ ...options, allow: parseAllowList(`127.0.0.1:${port}`) });
    const { socket } = await tunnel(`127.0.0.1:${port}`);
    return {
      socket,
      ended: new Promise((resolve) => socket.on('close', resolve)),
      upstreamClosed: () => closed,
      end: () => server.close(),
    };
  }

  it('bytes', async () => {
    const { socket, ended, upstreamClosed, end } = await talker({ maxBytes: 200_000 });
    socket.write('flood');
    await ended;
    await sleep(50);
    expect(upstreamClosed()).toBe(true);
    expect(log.at(-1)!.received).toBeLessThan(400_000);
    end();
  });

  it.each([{ idleMs: 150 }, { timeoutMs: 150 }])('time: %j', async (options) => {
    const { ended, upstreamClosed, end } = await talker(options);
    const before = Date.now();
    await ended;
    expect(Date.now() - before).toBeLessThan(2_000);
    await sleep(50);
    expect(upstreamClosed()).toBe(true);
    end();
  });

  it('a client that leaves ends the other side', async () => {
    const { socket, upstreamClosed, end } = await talker({});
    socket.destroy();
    await sleep(100);
    expect(upstreamClosed()).toBe(true);
    end();
  });

  it('stop ends open tunnels at once', async () => {
    const { ended, upstreamClosed, end } = await talker({});
    await proxy.stop();
    await ended;
    await sleep(50);
    expect(upstreamClosed()).toBe(true);
    end();
  });
});

describe('a door', () => {
  it('is the same proxy at a further address, with its rules and its log; closing it ends what came in there alone', async () => {
    const origin = createServer((socket) => void socket.on('error', () => undefined).pipe(socket));
    await new Promise<void>((resolve) => origin.listen(0, '127.0.0.1', resolve));
    const target = `127.0.0.1:${(origin.address() as AddressInfo).port}`;
    await start({ allow: parseAllowList(target) });
    const door = await proxy.door('127.0.0.2');
    expect(door.url).toMatch(/^http:\/\/127\.0\.0\.2:\d+$/);
    const enter = (at: string, target: string) =>
      new Promise<Socket>((resolve, reject) => {
        const { hostname, port } = new URL(at);
        const socket = connect(Number(port), hostname, () =>
          socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`),
        );
        socket.once('data', () => resolve(socket)).once('error', reject);
      });
    const [here, there] = [await enter(proxy.url!, target), await enter(door.url, target)];
    const echoed = (socket: Socket) =>
      new Promise<string>((resolve) => {
        socket.once('data', (data: Buffer) => resolve(data.toString()));
        socket.write('hello');
      });
    expect(await Promise.all([echoed(here), echoed(there)])).toEqual(['hello', 'hello']);
    await enter(door.url, '169.254.169.254:443');
    expect(log.filter(({ outcome }) => outcome === 'refused')).toHaveLength(1);
    const gone = new Promise((resolve) => there.once('close', resolve));
    await door.close();
    await gone;
    expect(await echoed(here)).toBe('hello');
    await expect(enter(door.url, target)).rejects.toThrow(/ECONNREFUSED/);
    const after = await proxy.door('127.0.0.2');
    await proxy.stop();
    await expect(enter(after.url, target)).rejects.toThrow(/ECONNREFUSED/);
    origin.close();
  });

  it('at an address that this host has not: the reason, and the proxy goes on', async () => {
    await start({});
    await expect(proxy.door('192.0.2.1')).rejects.toThrow(/EADDRNOTAVAIL/);
    expect((await tunnel('169.254.169.254:443')).answer).toMatch(/^HTTP\/1\.1 403/);
  });
});
