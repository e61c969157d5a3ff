import { createServer as createTls } from 'node:https';
import { type IncomingHttpHeaders } from 'node:http';
import { createServer as createTcp } from 'node:net';
import { type TLSSocket } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { selfSigned } from '@nebo/test-kit';
import { fakeInternet, startOrigin } from '../test/world.js';
import { createSafeClient } from './client.js';
import { SafeNetFailed } from './errors.js';
import { parseAllowList } from './policy.js';

type Handler = Parameters<typeof startOrigin>[0];
const stops: (() => Promise<void>)[] = [];
afterEach(async () => void (await Promise.all(stops.splice(0).map((stop) => stop()))));

/** An allowed origin on loopback. */
async function allowed(handle: Handler, options: Parameters<typeof createSafeClient>[0] = {}) {
  const origin = await startOrigin(handle);
  stops.push(origin.stop);
  const client = createSafeClient({ allow: parseAllowList(`127.0.0.1:${origin.port}`), ...options });
  return { client, url: `http://127.0.0.1:${origin.port}`, port: origin.port };
}

const failure = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => null,
    (thrown: Error) => thrown,
  );
  return error instanceof SafeNetFailed ? error.kind : `no: ${String(error)}`;
};

describe('a request', () => {
  it('carries method, headers and body, and gives status, headers and bytes', async () => {
    const { client, url } = await allowed((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        response.writeHead(418, {
          'x-seen': `${request.method} ${request.url} ${request.headers['x-a']} ${request.headers['user-agent']}`,
        });
        response.end(Buffer.concat(parts));
      });
    });
    const answer = await client.request(`${url}/p?q=1`, {
      method: 'post',
      headers: { 'X-A': 'b' },
      body: Buffer.from([0, 255]),
    });
    expect(answer).toMatchObject({
      status: 418,
      url: `${url}/p?q=1`,
      redirects: 0,
      headers: { 'x-seen': 'POST /p?q=1 b nebo' },
    });
    expect([...answer.body]).toEqual([0, 255]);
  });

  it.each([
    'Host',
    'Connection',
    'Transfer-Encoding',
    'Content-Length',
    'Upgrade',
    'Proxy-Authorization',
    'Proxy-X',
  ])('may not set %s', async (name) => {
    const { client, url } = await allowed((_request, response) => response.end());
    await expect(client.request(url, { headers: { [name]: '1' } })).rejects.toMatchObject({
      name: 'SafeNetRefused',
      rule: 'header',
    });
  });

  it('may not smuggle a line break in a header', async () => {
    const { client, url } = await allowed((_request, response) => response.end());
    expect(await failure(client.request(url, { headers: { 'x-a': 'b\r\nx-c: d' } }))).toBe('protocol');
  });

  it('asks only https when told so, except allowed hosts', async () => {
    const { client, url } = await allowed((_request, response) => response.end('ok'), { httpsOnly: true });
    await expect(client.request('http://example.com/')).rejects.toMatchObject({ rule: 'scheme' });
    expect((await client.request(url)).status).toBe(200);
    await expect(
      createSafeClient().request('http://example.com/', { httpsOnly: true }),
    ).rejects.toMatchObject({ rule: 'scheme' });
  });

  it('refuses own service names', async () => {
    const client = createSafeClient({ refuseNames: ['nebo.example'] });
    for (const host of ['nebo.example', 'api.nebo.example', 'API.NEBO.EXAMPLE.']) {
      await expect(client.request(`http://${host}/`)).rejects.toMatchObject({ rule: 'host_name' });
    }
  });
});

describe('caps', () => {
  it('stops an answer that is too large, however it is framed', async () => {
    const { client, url } = await allowed((request, response) => {
      if (request.url === '/sized') return void response.end(Buffer.alloc(2_000));
      const send = () => response.write(Buffer.alloc(64 * 1024), () => response.destroyed || send());
      send();
    });
    expect(await failure(client.request(`${url}/sized`, { maxBytes: 1_999 }))).toBe('too_large');
    expect((await client.request(`${url}/sized`, { maxBytes: 2_000 })).body).toHaveLength(2_000);
    expect(await failure(client.request(`${url}/endless`, { maxBytes: 1024 * 1024 }))).toBe('too_large');
  });

  it('does not inflate: what is counted is what was sent', async () => {
    const { gzipSync } = await import('node:zlib');
    const bomb = gzipSync(Buffer.alloc(5_000_000));
    const { client, url } = await allowed((_request, response) =>
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb),
    );
    const answer = await client.request(url, { maxBytes: bomb.length });
    expect(answer.body).toHaveLength(bomb.length);
  });

  it('has one deadline for headers, body and DNS', async () => {
    const { client, url } = await allowed((request, response) => {
      if (request.url === '/headers') return;
      response.writeHead(200);
      const drip = setInterval(() => response.write('.'), 20);
      response.on('close', () => clearInterval(drip));
    });
    expect(await failure(client.request(`${url}/headers`, { timeoutMs: 150 }))).toBe('timeout');
    expect(await failure(client.request(`${url}/drip`, { timeoutMs: 150 }))).toBe('timeout');
    const slow = createSafeClient({ lookup: () => sleep(5_000, ['93.184.215.14'], { ref: false }) });
    const before = Date.now();
    expect(await failure(slow.request('http://slow.example.com/', { timeoutMs: 150 }))).toBe('timeout');
    expect(Date.now() - before).toBeLessThan(1_500);
  });

  it('has one deadline for a connection and a TLS handshake that never come', async () => {
    const silent = createTcp(() => undefined);
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as { port: number };
    const { dial } = fakeInternet(() => port);
    const client = createSafeClient({ dial, lookup: async () => ['93.184.215.14'] });
    expect(await failure(client.request('https://example.com/', { timeoutMs: 150 }))).toBe('timeout');
    silent.close();
  });

  it('stops when the caller aborts, before and in between', async () => {
    const { client, url } = await allowed((_request, response) => void response.writeHead(200).write('x'));
    expect(await failure(client.request(url, { signal: AbortSignal.abort() }))).toBe('aborted');
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    expect(await failure(client.request(url, { signal: controller.signal }))).toBe('aborted');
  });

  it('says what failed without saying where', async () => {
    const client = createSafeClient({ lookup: () => Promise.reject(new Error('ENOTFOUND 10.0.0.53')) });
    await expect(client.request('http://nope.example.com/')).rejects.toMatchObject({
      kind: 'dns',
      publicMessage: 'the name nope.example.com does not resolve',
    });
    const empty = createSafeClient({ lookup: async () => [] });
    expect(await failure(empty.request('http://nope.example.com/'))).toBe('dns');
    const refused = createSafeClient({ allow: parseAllowList('127.0.0.1:1') });
    expect(await failure(refused.request('http://127.0.0.1:1/'))).toBe('connect');
    const garbage = createTcp((socket) => socket.end('SSH-2.0-x\r\n'));
    await new Promise<void>((resolve) => garbage.listen(0, '127.0.0.1', resolve));
    const { port } = garbage.address() as { port: number };
    const broken = createSafeClient({ allow: parseAllowList(`127.0.0.1:${port}`) });
    expect(await failure(broken.request(`http://127.0.0.1:${port}/`))).toBe('protocol');
    garbage.close();
  });

  it('tells a body that breaks off from one that is complete', async () => {
    const { client, url } = await allowed((request, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('half');
      setTimeout(() => request.socket.destroy(), 30);
    });
    expect(await failure(client.request(url))).toBe('protocol');
  });
});

describe('redirects', () => {
  const secrets = {
    authorization: 'Bearer s',
    cookie: 'a=b',
    'private-token': 't',
    'x-api-key': 'k',
    accept: 'text/plain',
    'content-type': 'text/x',
  };

  async function chain(status: number, sameOrigin: boolean, method: string) {
    const seen: { method: string; headers: IncomingHttpHeaders; body: string }[] = [];
    const other = await startOrigin((request, response) => {
      let body = '';
      request.on('data', (part: Buffer) => (body += part.toString()));
      request.on('end', () => {
        seen.push({ method: request.method!, headers: request.headers, body });
        response.end('end');
      });
    });
    stops.push(other.stop);
    const first = await startOrigin((request, response) => {
      if (request.url === '/end') return void other.stop;
      response
        .writeHead(status, { location: sameOrigin ? '/landed' : `http://127.0.0.1:${other.port}/landed` })
        .end();
    });
    stops.push(first.stop);
    const client = createSafeClient({
      allow: parseAllowList(`127.0.0.1:${first.port},127.0.0.1:${other.port}`),
    });
    const answer = await client.request(`http://127.0.0.1:${first.port}/`, {
      method,
      headers: secrets,
      ...(method === 'GET' ? {} : { body: 'hello' }),
    });
    return { answer, seen: seen[0]! };
  }

  it.each([301, 302, 303, 307, 308])('%d to another origin takes no secret along', async (status) => {
    const { answer, seen } = await chain(status, false, 'GET');
    expect(answer.redirects).toBe(1);
    expect(seen.headers).toMatchObject({ accept: 'text/plain', 'user-agent': 'nebo' });
    for (const name of ['authorization', 'cookie', 'private-token', 'x-api-key'])
      expect(seen.headers[name]).toBeUndefined();
  });

  it.each([
    [301, 'GET', ''],
    [302, 'GET', ''],
    [303, 'GET', ''],
    [307, 'POST', 'hello'],
    [308, 'POST', 'hello'],
  ])('%d turns POST into %s', async (status, method, body) => {
    const { seen } = await chain(status, false, 'POST');
    expect(seen).toMatchObject({ method, body });
  });

  it('keeps everything on the same origin, and stops after maxRedirects', async () => {
    const authorizations: (string | undefined)[] = [];
    const { client, url } = await allowed((request, response) => {
      authorizations.push(request.headers.authorization);
      const step = Number(request.url!.slice(1));
      if (step === 3) response.end('there');
      else response.writeHead(302, { location: `/${step + 1}` }).end();
    });
    const answer = await client.request(`${url}/0`, { headers: secrets });
    expect(answer).toMatchObject({ status: 200, redirects: 3, url: `${url}/3` });
    expect(authorizations).toEqual(Array(4).fill('Bearer s'));
    await expect(client.request(`${url}/0`, { maxRedirects: 2 })).rejects.toMatchObject({
      rule: 'redirects',
    });
    expect(await client.request(`${url}/0`, { maxRedirects: 0 })).toMatchObject({
      status: 302,
      headers: { location: '/1' },
    });
  });

  it('ends a loop', async () => {
    const { client, url } = await allowed((_request, response) =>
      response.writeHead(302, { location: '/' }).end(),
    );
    await expect(client.request(url)).rejects.toMatchObject({ rule: 'redirects' });
  });

  it('counts https as another origin than http', async () => {
    const { client, url } = await allowed(
      (_request, response) => response.writeHead(302, { location: 'http://example.com/' }).end(),
      { httpsOnly: true },
    );
    await expect(client.request(url)).rejects.toMatchObject({ rule: 'scheme' });
  });
});

describe('TLS', () => {
  it('asks for and verifies the original name at the checked address', async () => {
    const pair = await selfSigned(['example.com']);
    const names: (string | false | null | undefined)[] = [];
    const server = createTls(pair, (request, response) => {
      names.push((request.socket as TLSSocket & { servername?: string }).servername, request.headers.host);
      response.end('secure');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    stops.push(() => new Promise((resolve) => server.close(() => resolve())));
    const { dial, dialled } = fakeInternet(() => (server.address() as { port: number }).port);
    const options = { dial, lookup: async () => ['93.184.215.14'] };
    const client = createSafeClient({ ...options, ca: pair.cert });
    expect((await client.request('https://example.com/')).body.toString()).toBe('secure');
    expect(names).toEqual(['example.com', 'example.com']);
    expect(dialled).toEqual(['93.184.215.14 443']);
    expect(await failure(client.request('https://other.example.com/'))).toBe('connect');
    expect(await failure(createSafeClient(options).request('https://example.com/'))).toBe('connect');
    expect(await failure(client.request('https://93.184.215.14/'))).toBe('connect');
  });
});

describe('stream', () => {
  it('gives bytes as they come and closes the connection when dropped', async () => {
    let closed = false;
    const { client, url } = await allowed((_request, response) => {
      response.writeHead(200).write('first');
      response.on('close', () => (closed = true));
    });
    const { body } = await client.stream(url);
    for await (const part of body) {
      expect((part as Buffer).toString()).toBe('first');
      break;
    }
    await sleep(100);
    expect(closed).toBe(true);
  });
});
