import { compileRouting } from '@nebo/routing';
import { createSafeClient, parseAllowList } from '@nebo/safe-net';
import {
  artifact,
  ask,
  backend,
  Cleanup,
  ControlPlane,
  type Running,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';

const site = 'site.apps.localhost';
const server = 'server.apps.localhost';
const bare = 'bare.apps.localhost';

/** One file of rules, over files and over replicas. */
describe('rules of a routing file', () => {
  const cleanup = new Cleanup();
  const plane = new ControlPlane();
  let run: Running;
  let elsewhere: number;
  /** Paths as the replica got them. */
  const seen: string[] = [];

  beforeAll(async () => {
    const files = await artifact({
      'index.html': 'home',
      'app.html': 'app',
      'old.txt': 'a file',
      '404.html': 'lost',
    });
    plane.keep(files);
    const replica = await backend(cleanup, (req, res) => {
      seen.push(req.url!);
      res.setHeader('X-Frame-Options', 'SAMEORIGIN');
      res.setHeader('Vary', 'Accept-Encoding');
      res.end(`replica ${req.url}`);
    });
    const other = await backend(cleanup, (req, res) => {
      if (req.url === '/out/loop') {
        // What a second edge of ours would be asked.
        void ask(run.port, '/out/x', {
          host: site,
          headers: { 'x-nebo-rewritten': String(req.headers['x-nebo-rewritten']) },
        }).then((answer) => res.writeHead(answer.status).end());
        return;
      }
      const parts: Buffer[] = [];
      req.on('data', (part: Buffer) => parts.push(part));
      req.on('end', () =>
        res.writeHead(201, { 'X-From': 'elsewhere', Connection: 'close' }).end(
          JSON.stringify({
            method: req.method,
            url: req.url,
            host: req.headers.host,
            body: Buffer.concat(parts).toString(),
          }),
        ),
      );
    });
    elsewhere = other.port;
    const { routing } = compileRouting(
      'nebo.json',
      JSON.stringify({
        redirects: [
          { source: '/old/:name', destination: '/new/:name' },
          { source: '/old.txt', destination: '/moved' },
        ],
        headers: [
          { source: '/(.*)', headers: [{ key: 'X-Frame-Options', value: 'DENY' }] },
          { source: '/app', headers: [{ key: 'Cache-Control', value: 'public, max-age=7' }] },
        ],
        rewrites: [
          { source: '/index.html', destination: '/app.html' },
          { source: '/pages/:name', destination: '/app.html' },
          { source: '/out/:path*', destination: `http://127.0.0.1:${elsewhere}/out/:path*` },
          { source: '/inside/:path*', destination: 'http://127.0.0.1:9/:path*' },
        ],
        cors: [{ source: '/api/(.*)', origins: ['https://a.example'] }],
      }),
    );
    plane.route(site, staticTarget(files), { routing });
    plane.route(bare, staticTarget(files));
    const replicas = [{ id: 'r1', host: '127.0.0.1', port: replica.port }];
    plane.route(server, { kind: 'replicas', replicas }, { routing });
    run = await startEdge(cleanup, plane, {
      outside: createSafeClient({ allow: parseAllowList(`127.0.0.1:${elsewhere}`) }),
    });
    await until(() => run.edge.status().ready && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  it.each([site, server])('redirects before anything is looked for: %s', async (host) => {
    const moved = await ask(run.port, '/old/x?a=1', { host });
    expect([moved.status, moved.headers['location'], moved.text]).toEqual([308, '/new/x?a=1', '']);
    expect((await ask(run.port, '/old.txt', { host })).status).toBe(308);
    expect(seen.filter((url) => url.startsWith('/old'))).toEqual([]);
  });

  it.each([site, server])('puts headers over every answer, errors and refusals too: %s', async (host) => {
    for (const path of ['/', '/app', '/nothing/here.txt']) {
      const answer = await ask(run.port, path, { host });
      expect(answer.headers['x-frame-options']).toBe('DENY');
      expect(answer.headers['x-request-id']).toBeDefined();
      if (path === '/app') expect(answer.headers['cache-control']).toBe('public, max-age=7');
    }
    const refused = await ask(run.port, '/', { host: site, method: 'DELETE' });
    expect([refused.status, refused.headers['x-frame-options']]).toEqual([405, 'DENY']);
  });

  it('rewrites what no file answers, and no file', async () => {
    expect((await ask(run.port, '/pages/x', { host: site })).text).toBe('app');
    expect((await ask(run.port, '/index.html', { host: site })).text).toBe('home');
    expect((await ask(run.port, '/nowhere', { host: site })).status).toBe(404);
    expect((await ask(run.port, '/pages/x?q=1', { host: server })).text).toBe('replica /app.html?name=x&q=1');
  });

  it.each([site, server])('answers preflights and tells caches: %s', async (host) => {
    const headers = { origin: 'https://a.example', 'access-control-request-method': 'PUT' };
    const preflight = await ask(run.port, '/api/x', { host, method: 'OPTIONS', headers });
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      'access-control-allow-origin': 'https://a.example',
      'access-control-allow-methods': 'GET, HEAD, POST',
      vary: 'Origin',
    });
    const stranger = await ask(run.port, '/api/x', { host, headers: { origin: 'https://b.example' } });
    expect(stranger.headers['access-control-allow-origin']).toBeUndefined();
    expect(stranger.headers['vary']).toMatch(/Origin/);
    if (host === server) expect(stranger.headers['vary']).toBe('Accept-Encoding, Origin');
  });

  it('allows no origin that nobody named, on any answer', async () => {
    for (const path of ['/', '/nowhere', '/old.txt'])
      for (const method of ['GET', 'OPTIONS', 'DELETE']) {
        const headers = { origin: 'https://a.example', 'access-control-request-method': 'GET' };
        const answer = await ask(run.port, path, { host: bare, method, headers });
        expect(answer.headers['access-control-allow-origin']).toBeUndefined();
      }
  });

  it.each([site, server])('answers from elsewhere where a rule says so: %s', async (host) => {
    const answer = await ask(run.port, '/out/a%20b?q=1', { host, method: 'POST', body: 'hello' });
    expect([answer.status, answer.headers['x-from'], answer.headers['x-frame-options']]).toEqual([
      201,
      'elsewhere',
      'DENY',
    ]);
    expect(JSON.parse(answer.text)).toEqual({
      method: 'POST',
      url: '/out/a%20b?q=1',
      host: `127.0.0.1:${elsewhere}`,
      body: 'hello',
    });
  });

  it('reaches no private address by a rule, and says nothing of why', async () => {
    const answer = await ask(run.port, '/inside/x', { host: site, headers: { accept: 'application/json' } });
    expect(answer.status).toBe(502);
    expect(JSON.parse(answer.text).error.code).toBe('rewrite_refused');
    expect(answer.text).not.toContain('127.0.0.1');
  });

  it('ends rules that lead to each other', async () => {
    expect((await ask(run.port, '/out/loop', { host: site })).status).toBe(508);
  });

  it('switches rules together with what is served', async () => {
    const { routing } = compileRouting('nebo.json', '{"redirects":[{"source":"/","destination":"/next"}]}');
    const next = await artifact({ 'index.html': 'next' });
    plane.keep(next);
    plane.route(bare, staticTarget(next), { routing });
    await until(async () => (await ask(run.port, '/', { host: bare })).status === 308);
    expect((await ask(run.port, '/index.html', { host: bare })).text).toBe('next');
  });

  it('leaves out a route whose rules cannot be read, not the others', async () => {
    plane.route('broken.apps.localhost', { kind: 'none', reason: 'x' }, { routing: { format: 2 } as never });
    plane.route('fine.apps.localhost', { kind: 'none', reason: 'not yet' });
    await until(async () => (await ask(run.port, '/', { host: 'fine.apps.localhost' })).status === 503);
    expect((await ask(run.port, '/', { host: 'broken.apps.localhost' })).status).toBe(404);
  });
});
