import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import {
  artifact,
  ask,
  Cleanup,
  ControlPlane,
  open,
  raw,
  type Running,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';
import { contentType, isImmutableName } from './content.js';
import { FileCache } from './file-cache.js';
import { indexSite } from './index-site.js';
import { parseRange } from './range.js';
import { pathNames } from './resolve.js';

const big = Buffer.alloc(700_000, 'x');
const script = 'console.log("hello");\n'.repeat(200);
const files = {
  'index.html': '<h1>home</h1>',
  'about.html': '<h1>about</h1>',
  'docs/index.html': '<h1>docs</h1>',
  'docs/a b/index.html': 'space',
  'empty.txt': '',
  'ten.txt': '0123456789',
  'app.js': script,
  'assets/main.3f4e5d6c.js': script,
  'big.bin': big,
  'страница.html': 'кириллица',
  '.env': 'SECRET=1',
  '.git/config': 'SECRET=2',
  'sub/.hidden': 'SECRET=3',
  '.well-known/security.txt': 'contact',
};

describe('static sites over a socket', () => {
  const cleanup = new Cleanup();
  const plane = new ControlPlane();
  let run: Running;
  const withNotFound = 'nf.apps.localhost';
  const spa = 'shop.apps.localhost';

  beforeAll(async () => {
    const site = await artifact(files);
    const other = await artifact({ ...files, '404.html': '<h1>lost</h1>' });
    const bare = await artifact({ 'data.json': '{}' });
    plane.keep(site, other, bare);
    plane.route(spa, staticTarget(site));
    plane.route(withNotFound, staticTarget(other));
    plane.route('bare.apps.localhost', staticTarget(bare));
    run = await startEdge(cleanup, plane);
    await until(() => run.edge.status().ready && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  const get = (path: string, headers: Record<string, string> = {}, host = spa) =>
    ask(run.port, path, { headers, host });

  it.each([
    ['/', 200, '<h1>home</h1>'],
    ['/index.html', 200, '<h1>home</h1>'],
    ['/about', 200, '<h1>about</h1>'],
    ['/about.html', 200, '<h1>about</h1>'],
    ['/docs/', 200, '<h1>docs</h1>'],
    ['/docs/a%20b/', 200, 'space'],
    ['//docs//', 200, '<h1>docs</h1>'],
    ['/docs/../about', 200, '<h1>about</h1>'],
    ['/docs/%2e%2e/about', 200, '<h1>about</h1>'],
    ['/ten.txt?x=../../etc', 200, '0123456789'],
    ['/%D1%81%D1%82%D1%80%D0%B0%D0%BD%D0%B8%D1%86%D0%B0', 200, 'кириллица'],
    ['/.well-known/security.txt', 200, 'contact'],
    ['/empty.txt', 200, ''],
  ])('GET %s → %i', async (path, status, body) => {
    const answer = await get(path);
    expect([answer.status, answer.text]).toEqual([status, body]);
    expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
  });

  it.each([
    ['/docs', '/docs/'],
    ['/docs?a=1&b=%2F', '/docs/?a=1&b=%2F'],
    ['//docs', '/docs/'],
    ['/x/../docs', '/docs/'],
    ['/docs/a%20b', '/docs/a%20b/'],
  ])('%s redirects with 308 to %s', async (path, location) => {
    const answer = await get(path);
    expect([answer.status, answer.headers.location]).toEqual([308, location]);
  });

  it.each([
    '/..',
    '/../etc/passwd',
    '/%2e%2e/%2e%2e/etc/passwd',
    '/docs/../../etc/passwd',
    '/%zz',
    '/%ff',
    '/a%00b',
  ])('%s is malformed: 400', async (path) => {
    const answer = await raw(run.port, `GET ${path} HTTP/1.1\r\nHost: ${spa}\r\nConnection: close\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).not.toContain('root:');
  });

  it.each([
    '/.env',
    '/.git/config',
    '/sub/.hidden',
    '/%2eenv',
    '/..%2f..%2fetc%2fpasswd',
    '/%252e%252e/x.txt',
    '/..%5c..%5cx.txt',
    '/docs%2findex.html',
  ])('%s is not there: 404, also for browsers', async (path) => {
    for (const accept of ['text/html', '*/*']) {
      const answer = await get(path, { accept });
      expect(answer.status).toBe(404);
      expect(answer.text).not.toContain('SECRET');
    }
  });

  it('falls back to index.html for pages of single-page apps only', async () => {
    const page = await get('/cart/42', { accept: 'text/html,*/*;q=0.8' });
    expect([page.status, page.text, page.headers['vary']]).toEqual([200, '<h1>home</h1>', 'Accept']);
    expect((await get('/cart/42')).status).toBe(200);
    expect((await get('/api/x', { accept: 'application/json' })).status).toBe(404);
    expect((await get('/missing.js', { accept: 'text/html' })).status).toBe(404);
    expect((await get('/x', { accept: 'text/html' }, 'bare.apps.localhost')).status).toBe(404);
  });

  it('404.html wins over the fallback and has status 404', async () => {
    const answer = await get('/cart/42', { accept: 'text/html' }, withNotFound);
    expect([answer.status, answer.text]).toEqual([404, '<h1>lost</h1>']);
    expect(answer.headers.etag).toBeUndefined();
    expect((await get('/x.js', { range: 'bytes=0-1' }, withNotFound)).status).toBe(404);
  });

  it.each(['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('%s → 405 with Allow', async (method) => {
    const answer = await ask(run.port, '/', { method, body: method === 'POST' ? 'x' : undefined });
    expect([answer.status, answer.headers.allow]).toEqual([405, 'GET, HEAD']);
  });

  it('HEAD has the headers of GET and no body', async () => {
    const [head, full] = [await ask(run.port, '/ten.txt', { method: 'HEAD' }), await get('/ten.txt')];
    expect(head.body).toHaveLength(0);
    expect(head.headers['content-length']).toBe('10');
    expect(head.headers.etag).toBe(full.headers.etag);
  });

  it('revalidates by strong ETag: 304 without body', async () => {
    const { headers } = await get('/app.js');
    expect(headers.etag).toMatch(/^"[\w-]{27}"$/);
    for (const value of [headers.etag!, `W/${headers.etag}`, `"x", ${headers.etag}`, '*']) {
      const again = await get('/app.js', { 'if-none-match': value });
      expect([again.status, again.body.length, again.headers.etag]).toEqual([304, 0, headers.etag]);
      expect(again.headers['cache-control']).toBe('public, max-age=0, must-revalidate');
    }
    expect((await get('/app.js', { 'if-none-match': '"other"' })).status).toBe(200);
  });

  it('the same content has the same tag in another artifact', async () => {
    expect((await get('/app.js')).headers.etag).toBe((await get('/app.js', {}, withNotFound)).headers.etag);
  });

  it.each([
    ['bytes=2-4', 206, '234', 'bytes 2-4/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=-99', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=0-999', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=10-', 416, null, 'bytes */10'],
    ['bytes=-0', 416, null, 'bytes */10'],
    ['bytes=5-2', 200, '0123456789', undefined],
    ['bytes=0-1,3-4', 200, '0123456789', undefined],
    ['lines=0-1', 200, '0123456789', undefined],
    ['bytes=x', 200, '0123456789', undefined],
  ])('Range %s → %i', async (range, status, body, contentRange) => {
    const answer = await get('/ten.txt', { range });
    expect([answer.status, answer.headers['content-range']]).toEqual([status, contentRange]);
    if (body !== null) expect(answer.text).toBe(body);
  });

  it('If-Range: part when the tag is the same, else all', async () => {
    const { headers } = await get('/ten.txt');
    expect((await get('/ten.txt', { range: 'bytes=0-1', 'if-range': headers.etag! })).status).toBe(206);
    expect((await get('/ten.txt', { range: 'bytes=0-1', 'if-range': '"old"' })).status).toBe(200);
    expect((await get('/ten.txt', { range: 'bytes=0-1', 'if-none-match': headers.etag! })).status).toBe(304);
  });

  it('streams a large file whole and in part', async () => {
    expect((await get('/big.bin')).body.equals(big)).toBe(true);
    const part = await get('/big.bin', { range: 'bytes=1000-600000' });
    expect([part.status, part.body.length]).toEqual([206, 599_001]);
  });

  it('a client that leaves in the middle of a large file does no harm', async () => {
    for (let i = 0; i < 20; i++) (await open(run.port, '/big.bin')).destroy();
    expect((await get('/big.bin')).body.length).toBe(big.length);
  });

  it('sends compressed forms, each with its own tag, and never a part of one', async () => {
    for (const [accept, coding, unpack] of [
      ['gzip, deflate, br', 'br', brotliDecompressSync],
      ['gzip', 'gzip', gunzipSync],
      ['br;q=0.5, gzip;q=0.9', 'gzip', gunzipSync],
      ['*', 'br', brotliDecompressSync],
    ] as const) {
      const answer = await get('/app.js', { 'accept-encoding': accept });
      expect([answer.headers['content-encoding'], answer.headers.vary]).toEqual([coding, 'Accept-Encoding']);
      expect(unpack(answer.body).toString()).toBe(script);
      expect(answer.body.length).toBe(Number(answer.headers['content-length']));
      expect(answer.headers.etag).toMatch(new RegExp(`-${coding}"$`));
      const again = await get('/app.js', {
        'accept-encoding': accept,
        'if-none-match': answer.headers.etag!,
      });
      expect(again.status).toBe(304);
    }
    for (const accept of ['identity', 'br;q=0, gzip;q=0', 'zstd', '*;q=0']) {
      const plain = await get('/app.js', { 'accept-encoding': accept });
      expect([plain.headers['content-encoding'], plain.headers.vary, plain.text]).toEqual([
        undefined,
        'Accept-Encoding',
        script,
      ]);
    }
    const part = await get('/app.js', { 'accept-encoding': 'br', range: 'bytes=0-6' });
    expect([part.status, part.text, part.headers['content-encoding']]).toEqual([206, 'console', undefined]);
    expect((await get('/ten.txt', { 'accept-encoding': 'br' })).headers.vary).toBeUndefined();
  });

  it('types, charset and cache times', async () => {
    const one = await get('/assets/main.3f4e5d6c.js');
    expect(one.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect(one.headers['content-type']).toBe('text/javascript; charset=utf-8');
    expect((await get('/')).headers['content-type']).toBe('text/html; charset=utf-8');
    expect((await get('/')).headers['cache-control']).toBe('public, max-age=0, must-revalidate');
    expect((await get('/big.bin')).headers['content-type']).toBe('application/octet-stream');
  });
});

describe('parts of static serving', () => {
  const cleanup = new Cleanup();
  afterEach(() => cleanup.run());

  it('index: links inside count, links out of the site, to dotfiles, hanging and circular ones do not', async () => {
    const home = await cleanup.folder();
    const root = join(home, 'site');
    await mkdir(join(root, 'dir'), { recursive: true });
    await mkdir(join(home, 'site-evil'));
    await writeFile(join(home, 'secret.txt'), 'secret');
    await writeFile(join(home, 'site-evil/x.txt'), 'secret');
    await writeFile(join(root, 'a.txt'), 'a');
    await writeFile(join(root, '.env'), 'secret');
    await writeFile(join(root, 'dir/b.txt'), 'b');
    for (const [name, target] of [
      ['inner.txt', 'a.txt'],
      ['inner-dir', 'dir'],
      ['out.txt', '../secret.txt'],
      ['absolute.txt', '/etc/passwd'],
      ['sibling.txt', '../site-evil/x.txt'],
      ['parent', '..'],
      ['root', '/'],
      ['chain.txt', 'out.txt'],
      ['env.txt', '.env'],
      ['nowhere', 'missing'],
      ['self', 'self'],
      ['dir/up', '..'],
    ]) {
      await symlink(target!, join(root, name!));
    }
    const site = await indexSite('0'.repeat(64), root);
    expect([...site.files.keys()].sort()).toEqual(['a.txt', 'dir/b.txt', 'inner-dir/b.txt', 'inner.txt']);
  });

  it('names of a path are decoded once', () => {
    expect(pathNames('/a%2520b')).toEqual({ names: ['a%20b'], folder: false });
    expect(pathNames('/a/./b/../c/')).toEqual({ names: ['a', 'c'], folder: true });
    expect(pathNames('/a/../../b')).toBeNull();
  });

  it('hashed names and only those are immutable', () => {
    for (const name of [
      'main.3f4e5d6c.js',
      'index-BxYz12Ab.css',
      'chunk.0a1b2c3d4e5f.js.map',
      '_next/static/x/y.js',
      'a/index-C-d3_Xa1.js',
    ]) {
      expect([name, isImmutableName(name)]).toEqual([name, true]);
    }
    for (const name of [
      'app.js',
      'jquery.bootstrap.js',
      'report.20240101.pdf',
      'main.3f4e5d6c.html',
      'report-version2.pdf',
      'my-long-name.css',
      'index.html',
    ]) {
      expect([name, isImmutableName(name)]).toEqual([name, false]);
    }
  });

  it('types', () => {
    expect(contentType('a.svg')).toBe('image/svg+xml; charset=utf-8');
    expect(contentType('a.json')).toBe('application/json; charset=utf-8');
    expect(contentType('a.png')).toBe('image/png');
    expect(contentType('LICENSE')).toBe('application/octet-stream');
  });

  it('an empty file has no satisfiable range', () => {
    expect(parseRange('bytes=0-', 0)).toEqual({ kind: 'unsatisfiable' });
    expect(parseRange('bytes=-1', 0)).toEqual({ kind: 'unsatisfiable' });
  });

  it('the cache stays within its bytes', async () => {
    const home = await cleanup.folder();
    const cache = new FileCache(1000, 400);
    for (let i = 0; i < 5; i++) {
      await writeFile(join(home, `${i}`), Buffer.alloc(300, i));
      expect((await cache.read(join(home, `${i}`), 300))![0]).toBe(i);
      expect(cache.bytes).toBeLessThanOrEqual(1000);
    }
    expect(await cache.read(join(home, 'large'), 401)).toBeNull();
  });
});
