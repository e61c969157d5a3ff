import { randomBytes } from 'node:crypto';
import { type Socket } from 'node:net';
import zlib from 'node:zlib';
import { ask2, h2 } from '../../test/h2.js';
import { type IncomingMessage, type ServerResponse } from 'node:http';
import { backend, Cleanup, open, ask, raw, replicas, serving, tcp, until } from '../../test/kit.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());

const page = `<!doctype html>${'<p>All work and no play makes a dull page.</p>\n'.repeat(100)}`;
const decoders: Record<string, (body: Buffer) => Buffer> = {
  zstd: zlib.zstdDecompressSync,
  br: zlib.brotliDecompressSync,
  gzip: zlib.gunzipSync,
};

/** An edge before an app that answers so. */
async function before(
  answer: (req: IncomingMessage, res: ServerResponse) => void,
  tuning: { codedAnswers?: number } = {},
) {
  const app = await backend(cleanup, answer);
  return serving(cleanup, replicas(app.port), { tuning });
}

/** An app whose path chooses among answers. */
const answers: Record<string, [headers: Record<string, string>, body?: Buffer | string, status?: number]> = {
  '/html': [{ 'content-type': 'text/html; charset=utf-8', 'content-length': String(page.length) }],
  '/chunked': [{ 'content-type': 'text/html' }],
  '/etag': [{ 'content-type': 'TEXT/HTML', etag: '"abc"', 'accept-ranges': 'bytes', vary: 'Cookie' }],
  '/weak': [{ 'content-type': 'application/json', etag: 'W/"abc"', vary: 'accept-encoding' }],
  '/all': [{ 'content-type': 'text/html', vary: '*' }],
  '/problem': [{ 'content-type': 'application/problem+json' }, page, 422],
  '/empty': [{ 'content-type': 'text/plain' }, ''],
  // Left as they are.
  '/api': [{ 'content-type': 'application/json', etag: '"abc"' }],
  '/short': [{ 'content-type': 'text/html', 'content-length': '5' }, 'hello'],
  '/image': [{ 'content-type': 'image/png' }],
  '/unknown': [{}],
  '/forbidden': [{ 'content-type': 'text/html', 'cache-control': 'private, No-Transform' }],
  '/digest': [{ 'content-type': 'text/html', 'repr-digest': 'sha-256=:AAAA:' }],
  '/coded': [{ 'content-type': 'text/html', 'content-encoding': 'gzip' }, zlib.gzipSync(page)],
  '/events': [{ 'content-type': 'text/event-stream' }],
  '/part': [{ 'content-type': 'text/html', 'content-range': 'bytes 0-1999/9999' }, page.slice(0, 2000), 206],
};
const byPath = (req: IncomingMessage, res: ServerResponse): void => {
  const [headers, body, status] = answers[req.url!]!;
  res.writeHead(status ?? 200, headers);
  res.end(body ?? page);
};

describe('coding of app answers', () => {
  it.each([
    ['gzip, deflate, br, zstd', 'zstd'],
    ['gzip, deflate, br', 'br'],
    ['gzip', 'gzip'],
    ['*', 'zstd'],
    ['zstd;q=0, br;q=0.5, gzip', 'gzip'],
  ])('gives a client that takes "%s" %s', async (accept, coding) => {
    const { port } = await before(byPath);
    for (const path of ['/html', '/chunked', '/problem']) {
      const answer = await ask(port, path, { headers: { 'accept-encoding': accept } });
      expect([path, answer.headers['content-encoding'], answer.headers.vary]).toEqual([
        path,
        coding,
        'Accept-Encoding',
      ]);
      expect(decoders[coding]!(answer.body).toString()).toBe(page);
      expect(answer.body.length).toBeLessThan(page.length / 5);
      expect(answer.status).toBe(path === '/problem' ? 422 : 200);
      expect(answer.headers['content-length']).toBeUndefined();
    }
  });

  it('leaves a client that takes none the plain form, and says that there are others', async () => {
    const { port } = await before(byPath);
    for (const headers of [
      {},
      { 'accept-encoding': 'identity' },
      { 'accept-encoding': 'gzip;q=0, deflate' },
    ]) {
      const answer = await ask(port, '/html', { headers: headers as Record<string, string> });
      expect(answer.text).toBe(page);
      expect(answer.headers['content-encoding']).toBeUndefined();
      expect(answer.headers['content-length']).toBe(String(page.length));
      expect(answer.headers.vary).toBe('Accept-Encoding');
    }
    const old = await raw(
      port,
      'GET /html HTTP/1.0\r\nHost: shop.apps.localhost\r\nAccept-Encoding: gzip\r\n\r\n',
    );
    expect(old).toMatch(/dull page/);
  });

  it('weakens tags, drops ranges and keeps what Vary said', async () => {
    const { port } = await before(byPath);
    const headers = { 'accept-encoding': 'gzip' };
    const tagged = await ask(port, '/etag', { headers });
    expect(tagged.headers).toMatchObject({ etag: 'W/"abc"', vary: 'Cookie, Accept-Encoding' });
    expect(tagged.headers['accept-ranges']).toBeUndefined();
    expect((await ask(port, '/etag')).headers).toMatchObject({ etag: '"abc"', 'accept-ranges': 'bytes' });
    expect((await ask(port, '/weak', { headers })).headers).toMatchObject({
      ...{ etag: 'W/"abc"', vary: 'accept-encoding', 'content-encoding': 'gzip' },
    });
    expect((await ask(port, '/all', { headers })).headers.vary).toBe('*');
    const empty = await ask(port, '/empty', { headers });
    expect(zlib.gunzipSync(empty.body).length).toBe(0);
  });

  it.each(Object.keys(answers).slice(Object.keys(answers).indexOf('/api')))(
    'leaves %s as the app made it',
    async (path) => {
      const { port } = await before(byPath);
      const answer = await ask(port, path, { headers: { 'accept-encoding': 'gzip, br, zstd' } });
      const [headers, body = page] = answers[path]!;
      expect(answer.body.equals(Buffer.from(body))).toBe(true);
      expect(answer.headers['content-encoding']).toBe(headers['content-encoding']);
      expect(answer.headers).toMatchObject(headers);
    },
  );

  it('leaves HEAD alone, and everything where the operator wants that', async () => {
    const headers = { 'accept-encoding': 'gzip' };
    const usual = await before(byPath);
    const head = await ask(usual.port, '/html', { method: 'HEAD', headers });
    expect(head.headers['content-length']).toBe(String(page.length));
    expect(head.headers['content-encoding']).toBeUndefined();
    const off = await before(byPath, { codedAnswers: 0 });
    expect((await ask(off.port, '/html', { headers })).text).toBe(page);
  });

  it.each(['zstd', 'br', 'gzip'])(
    'sends the first part of a stream before the second exists: %s',
    async (coding) => {
      let go: () => void = () => undefined;
      const { port } = await before((_req, res) => {
        res.writeHead(200, { 'content-type': 'text/html' });
        res.write('first part');
        go = () => res.end('second part');
      });
      const answer = await open(port, '/', { headers: { 'accept-encoding': coding } });
      expect(answer.headers['content-encoding']).toBe(coding);
      const decoder = {
        zstd: zlib.createZstdDecompress,
        br: zlib.createBrotliDecompress,
        gzip: zlib.createGunzip,
      }[coding as 'br']();
      let text = '';
      answer.pipe(decoder).on('data', (chunk: Buffer) => (text += chunk.toString()));
      await until(() => text === 'first part');
      go();
      await until(() => text === 'first partsecond part');
      await until(() => decoder.readableEnded);
    },
  );

  it.each(['zstd', 'br', 'gzip'])('passes 30 MB octet for octet to a slow reader: %s', async (coding) => {
    // Random letters, so that the coded form is large, too.
    const body = Buffer.from(randomBytes(15_000_000).toString('hex'));
    let written = 0;
    const { port } = await before((_req, res) => {
      res.writeHead(200, { 'content-type': 'text/plain' });
      const more = (): void => {
        while (written < body.length) {
          const chunk = body.subarray(written, (written += 64 * 1024));
          if (!res.write(chunk)) return void res.once('drain', more);
        }
        res.end();
      };
      more();
    });
    const answer = await open(port, '/', { headers: { 'accept-encoding': coding } });
    answer.pause();
    let last = -1;
    // The app is held up as long as nobody reads.
    await until(async () => {
      last = written;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return written === last && written > 0;
    });
    expect(written).toBeLessThan(body.length);
    const parts: Buffer[] = [];
    for await (const part of answer) parts.push(part as Buffer);
    expect(decoders[coding]!(Buffer.concat(parts)).equals(body)).toBe(true);
  });

  it('cuts the client off when the app breaks off, and the app when the client leaves', async () => {
    const apps: Socket[] = [];
    const port = await tcp(cleanup, (socket) => {
      apps.push(socket);
      socket.once('data', () => {
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n',
        );
      });
    });
    const edge = await serving(cleanup, replicas(port), { tuning: { codedAnswers: 1 } });
    const headers = { 'accept-encoding': 'gzip' };
    const first = await open(edge.port, '/', { headers });
    const error = new Promise<Error>((resolve) => first.once('error', resolve));
    first.once('data', () => apps[0]!.destroy());
    expect(await error).toMatchObject({ code: 'ECONNRESET' });
    const second = await open(edge.port, '/', { headers });
    expect(second.headers['content-encoding']).toBe('gzip');
    let isClosed = false;
    apps[1]!.once('close', () => (isClosed = true));
    // One more than may be coded at once goes out plain.
    const third = await open(edge.port, '/', { headers });
    expect(third.headers['content-encoding']).toBeUndefined();
    expect(third.headers.vary).toBe('Accept-Encoding');
    third.destroy();
    second.destroy();
    await until(() => isClosed);
    // What an ended exchange held is free again.
    await until(async () => {
      const answer = await open(edge.port, '/', { headers });
      answer.destroy();
      return answer.headers['content-encoding'] === 'gzip';
    });
  });

  it('codes over HTTP/2 as well, with trailers', async () => {
    const { tlsPort } = await before((_req, res) => {
      res.writeHead(200, { 'content-type': 'text/html', trailer: 'X-Sum' });
      res.write(page);
      res.addTrailers({ 'X-Sum': '42' });
      res.end();
    });
    const session = await h2(cleanup, tlsPort);
    const answer = await ask2(session, '/', { 'accept-encoding': 'br' });
    expect(answer.headers['content-encoding']).toBe('br');
    expect(zlib.brotliDecompressSync(answer.body).toString()).toBe(page);
    expect(answer.trailers['x-sum']).toBe('42');
  });
});
