import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo } from 'node:net';
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
import { Elsewhere } from './elsewhere.js';

const site = 'site.apps.localhost';
const server = 'server.apps.localhost';
const slowSite = 'slow.apps.localhost';

/** Rules and visitors that mean harm: to the edge, or to the sites of others on it. */
describe('hostile rules', () => {
  const cleanup = new Cleanup();
  const plane = new ControlPlane();
  let run: Running;
  let otherPort: number;

  beforeAll(async () => {
    const files = await artifact({ 'index.html': 'home' });
    plane.keep(files);
    const replica = await backend(cleanup, (_req, res) => res.end('replica'));
    const other = await backend(cleanup, (req, res) => {
      req.resume().on('end', () => res.end('elsewhere'));
    });
    otherPort = other.port;
    const { routing } = compileRouting(
      'nebo.json',
      JSON.stringify({
        redirects: [{ source: '/away/:x*', destination: '/страница/\r\nX-Evil: 1/:x*' }],
        headers: [
          {
            source: '/(.*)',
            has: [{ type: 'query', key: 'q' }],
            headers: [{ key: 'X-Echo', value: ':q' }],
          },
        ],
        rewrites: [{ source: '/out/:path*', destination: `http://127.0.0.1:${other.port}/:path*` }],
      }),
    );
    plane.route(site, staticTarget(files), { routing });
    const replicas = [{ id: 'r1', host: '127.0.0.1', port: replica.port }];
    plane.route(server, { kind: 'replicas', replicas }, { routing });
    const heavy = [{ source: '/s/(.*a.{1000}c)', destination: '/x' }];
    plane.route(slowSite, staticTarget(files), {
      routing: compileRouting('nebo.json', JSON.stringify({ redirects: heavy })).routing,
    });
    run = await startEdge(cleanup, plane, {
      outside: createSafeClient({ allow: parseAllowList(`127.0.0.1:${other.port}`) }),
    });
    await until(() => run.edge.status().ready && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  it.each([site, server])(
    'a visitor writes nothing into a header that no header can hold: %s',
    async (host) => {
      for (const q of ['%E6%97%A5', '%0d%0aX-Evil:%201', '%00']) {
        const answer = await ask(run.port, `/?q=${q}`, { host });
        expect([answer.status, answer.headers['x-echo'], answer.headers['x-evil']]).toEqual([
          200,
          undefined,
          undefined,
        ]);
      }
      expect((await ask(run.port, '/?q=plain', { host })).headers['x-echo']).toBe('plain');
    },
  );

  it.each([site, server])('writes an address of any letters so that it stays one: %s', async (host) => {
    const answer = await ask(run.port, '/away/b', { host });
    expect([answer.status, answer.headers['location'], answer.headers['x-evil']]).toEqual([
      308,
      '/%D1%81%D1%82%D1%80%D0%B0%D0%BD%D0%B8%D1%86%D0%B0/%0D%0AX-Evil:%201/b',
      undefined,
    ]);
  });

  it('says that a body is too large for elsewhere, and goes on for the next one', async () => {
    const tooMuch = Buffer.alloc(10 * 1024 * 1024 + 1);
    expect(await upload(run.port, '/out/x', [tooMuch])).toMatch(/^413 .*body_too_large/);
    expect(await upload(run.port, '/out/x', [Buffer.alloc(1024 * 1024)])).toBe('200 elsewhere');
  });

  it('holds so many bytes of bodies at a time, and gives their room back', async () => {
    const elsewhere = new Elsewhere(
      createSafeClient({ allow: parseAllowList(`127.0.0.1:${otherPort}`) }),
      1_000,
    );
    const door = createServer((req, res) => {
      const origin = `http://127.0.0.1:${otherPort}`;
      void elsewhere.answer(req, res, {
        ...{ origin, url: '/', authority: site, secure: false, requestId: 'request-1', hasBody: true },
      });
    }).listen(0, '127.0.0.1');
    cleanup.add(() => new Promise<void>((resolve) => door.close(() => resolve())));
    await once(door, 'listening');
    const { port } = door.address() as AddressInfo;
    const slow = request({ port, method: 'POST' });
    slow.write(Buffer.alloc(900));
    await until(async () => (await upload(port, '/', [Buffer.alloc(200)])).startsWith('503 '));
    const answered = once(slow, 'response');
    slow.end();
    await answered;
    expect(await upload(port, '/', [Buffer.alloc(900)])).toBe('200 elsewhere');
  });

  it('gives up on rules that take too long for one request; the edge goes on', async () => {
    // Random letters, so that no matcher can skip over them.
    const path = `/s/${randomBytes(6_000).toString('hex').replaceAll(/[0-9]/g, 'b')}c`;
    const answer = await ask(run.port, path, { host: slowSite });
    expect(answer.status).toBe(500);
    expect((await ask(run.port, '/', { host: slowSite })).text).toBe('home');
  });
});

function upload(port: number, path: string, parts: readonly Buffer[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { host: site, 'transfer-encoding': 'chunked' };
    const req = request({ port, path, method: 'POST', headers }, (res) => {
      let text = `${res.statusCode} `;
      res.on('data', (part: Buffer) => (text += part.toString()));
      res.on('end', () => resolve(text));
    });
    req.on('error', reject);
    for (const part of parts) req.write(part);
    req.end();
  });
}
