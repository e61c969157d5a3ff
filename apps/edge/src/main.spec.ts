import { spawn, type ChildProcess } from 'node:child_process';
import http from 'node:http';
import { join } from 'node:path';
import { artifact, ask, backend, Cleanup, freePort, open, until } from '../test/kit.js';
import { IdentitySigner, identityHeader } from '@nebo/contracts';
import { RemoteTarget } from '@nebo/service-kit';
import { edgeSettings, targetRouteSource } from './index.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());

describe('settings', () => {
  it('defaults', () => {
    expect(edgeSettings({ NEBO_HOME: '/data' })).toEqual({
      port: 8080,
      tlsPort: 8443,
      home: '/data',
      appsDomain: 'apps.localhost',
      appsBuilderUrl: null,
      wakeDoor: null,
      tuning: { wakeQueue: 200, wakeQueueTotal: 2_000, wakeTimeoutMs: 150_000, codedAnswers: 256 },
    });
  });

  it('the agent that wakes apps: by socket or by address', () => {
    const of = (env: Record<string, string>) => edgeSettings({ NEBO_HOME: '/data', ...env });
    expect(of({ NEBO_WAKE: 'unix:/run/wake.sock' }).wakeDoor).toEqual({
      address: { socketPath: '/run/wake.sock' },
      token: null,
    });
    const token = 'x'.repeat(32);
    expect(of({ NEBO_WAKE: 'http://[::1]:4010', NEBO_WAKE_TOKEN: token }).wakeDoor).toEqual({
      address: { host: '::1', port: 4010 },
      token,
    });
    const tuning = of({
      NEBO_WAKE_QUEUE: '5',
      NEBO_WAKE_QUEUE_TOTAL: '6',
      NEBO_WAKE_TIMEOUT: '7',
      NEBO_EDGE_COMPRESS: '0',
    });
    expect(tuning.tuning).toEqual({ wakeQueue: 5, wakeQueueTotal: 6, wakeTimeoutMs: 7_000, codedAnswers: 0 });
  });

  it.each([
    ['NEBO_EDGE_PORT', '80a'],
    ['NEBO_EDGE_PORT', '-1'],
    ['NEBO_EDGE_PORT', '65536'],
    ['NEBO_EDGE_TLS_PORT', '1e3'],
    ['NEBO_EDGE_TLS_PORT', '8080'],
    ['NEBO_APPS_DOMAIN', 'not a domain'],
    ['NEBO_APPS_DOMAIN', '*.x.org'],
    ['NEBO_APPS_BUILDER_URL', 'localhost:1'],
    ['NEBO_HOME', 'a\0b'],
    ['NEBO_WAKE', 'unix:relative.sock'],
    ['NEBO_WAKE', `unix:/${'long/'.repeat(30)}sock`],
    ['NEBO_WAKE', 'https://127.0.0.1:4010'],
    ['NEBO_WAKE', 'http://127.0.0.1:4010/path'],
    ['NEBO_WAKE_QUEUE', '0'],
    ['NEBO_WAKE_QUEUE_TOTAL', 'many'],
    ['NEBO_WAKE_TIMEOUT', '3601'],
  ])('%s=%j stops the start and is named', (name, value) => {
    expect(() => edgeSettings({ [name]: value })).toThrow(name);
  });
});

describe('targetRouteSource', () => {
  it('speaks the internal calls, signed as the edge', async () => {
    const signer = new IdentitySigner(Buffer.alloc(32, 3));
    const calls: string[] = [];
    const control = await backend(cleanup, (req, res) => {
      let body = '';
      req.on('data', (chunk: Buffer) => (body += chunk.toString()));
      req.on('end', () => {
        const caller = signer.read(req.headers[identityHeader] as string);
        calls.push(
          `${req.method} ${req.url} ${caller?.kind === 'service' ? caller.service : 'nobody'} ${body}`,
        );
        if (req.url === '/internal/v1/blobs/missing') return void res.writeHead(404).end();
        res.end(
          req.url!.startsWith('/internal/v1/routes?')
            ? '{"version":"7","full":true,"routes":[],"removed":[]}'
            : 'bytes',
        );
      });
    });
    const target = new RemoteTarget(`http://127.0.0.1:${control.port}`);
    cleanup.add(() => target.close());
    const source = targetRouteSource(target, signer);
    const { signal } = new AbortController();
    expect((await source.fetchRoutes('6', signal, 30_000, 'e1')).version).toBe('7');
    await source.fetchRoutes(null, signal, 0, 'e1');
    expect((await source.fetchArtifact('ab', signal)).setEncoding('utf8').read).toBeDefined();
    await source.confirm!(
      '7',
      [{ host: 'a.org', app_id: 'x', account_id: 'y', build_id: 'b', target: { kind: 'none', reason: '' } }],
      signal,
      'e1',
    );
    await source.leave!('e1', signal);
    await expect(source.fetchArtifact('missing', signal)).rejects.toThrow('answered 404');
    expect(calls).toEqual([
      'GET /internal/v1/routes?wait=30&edge=e1&since=6 edge ',
      'GET /internal/v1/routes?wait=0&edge=e1 edge ',
      'GET /internal/v1/blobs/ab edge ',
      'POST /internal/v1/routes/applied edge {"version":"7","edge":"e1","routes":[{"host":"a.org","build_id":"b"}]}',
      'DELETE /internal/v1/edges/e1 edge ',
      'GET /internal/v1/blobs/missing edge ',
    ]);
  });
});

/** The real process, from source through SWC. */
function start(env: Record<string, string>): {
  child: ChildProcess;
  output: () => string;
  exit: Promise<number | null>;
} {
  const root = join(import.meta.dirname, '..');
  const child = spawn(
    process.execPath,
    ['--conditions=nebo-src', '--import', '../../tools/test/run-ts.mjs', 'src/main.ts'],
    {
      cwd: root,
      env: { PATH: process.env['PATH'], ...env },
    },
  );
  let text = '';
  child.stdout!.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stderr!.on('data', (chunk: Buffer) => (text += chunk.toString()));
  cleanup.add(() => child.kill('SIGKILL'));
  return { child, output: () => text, exit: new Promise((resolve) => child.once('exit', resolve)) };
}

describe('the process', () => {
  it('serves from a control plane, and after kill -9 from disk alone; SIGTERM ends it within 10 s', async () => {
    const home = await cleanup.folder();
    const site = await artifact({ 'index.html': 'hello' });
    const app = await backend(cleanup, (_req, res) => void res.writeHead(200).write('for ever'));
    const answer = {
      version: '1',
      full: true,
      routes: [
        {
          host: 'shop.apps.localhost',
          app_id: 'a',
          account_id: 'x',
          build_id: null,
          target: { kind: 'static', artifact_sha256: site.sha256, artifact_bytes: site.bytes },
        },
        {
          host: 'app.apps.localhost',
          app_id: 'b',
          account_id: 'x',
          build_id: null,
          target: { kind: 'replicas', replicas: [{ id: 'r', host: '127.0.0.1', port: app.port }] },
        },
      ],
      removed: [],
    };
    let confirmed = '';
    const control = await backend(cleanup, (req, res) => {
      if (req.method === 'POST')
        req.on('data', (chunk: Buffer) => (confirmed += chunk.toString())).on('end', () => res.end());
      else if (req.url!.includes('/blobs/')) res.end(site.body);
      else if (req.url!.includes('since='))
        setTimeout(() => res.end(JSON.stringify({ ...answer, full: false, routes: [] })), 500);
      else res.end(JSON.stringify(answer));
    });
    const port = await freePort();
    const env = {
      NEBO_HOME: home,
      NEBO_EDGE_PORT: String(port),
      NEBO_EDGE_TLS_PORT: String(await freePort()),
    };
    const serves = async (): Promise<boolean> => (await ask(port, '/').catch(() => null))?.text === 'hello';

    const first = start({ ...env, NEBO_APPS_BUILDER_URL: `http://127.0.0.1:${control.port}` });
    await until(serves, 30_000);
    // What was confirmed is on disk.
    await until(() => confirmed.includes('shop.apps.localhost'));
    first.child.kill('SIGKILL');
    await first.exit;

    const second = start(env);
    const { output } = second;
    await until(serves, 30_000);
    // An endless stream must not keep it alive.
    const stream = await open(port, '/', { host: 'app.apps.localhost' });
    stream.on('error', () => undefined).resume();
    const began = performance.now();
    second.child.kill('SIGTERM');
    expect(await second.exit).toBe(0);
    expect(performance.now() - began).toBeLessThan(10_000);
    // Also the lines of what was cut at the very end.
    await until(() => output().includes('app.apps.localhost'));
    const lines = second
      .output()
      .split('\n')
      .filter((line) => line.includes('"msg":"request"'));
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ host: 'shop.apps.localhost', status: 200, name: 'edge' }),
        expect.objectContaining({ host: 'app.apps.localhost', status: 200, aborted: true }),
      ]),
    );
    http.globalAgent.destroy();
  }, 90_000);

  it('a closed terminal ends it in order, though nobody reads any more what it says', async () => {
    const { child, output, exit } = start({
      NEBO_HOME: await cleanup.folder(),
      NEBO_EDGE_PORT: '0',
      NEBO_EDGE_TLS_PORT: '0',
    });
    // It says that it has no control plane; after that it listens.
    await until(() => output().includes('NEBO_WAKE'), 30_000);
    child.stdout!.destroy();
    child.stderr!.destroy();
    child.kill('SIGHUP');
    expect(await exit).toBe(0);
  }, 60_000);

  it.each([
    [{ NEBO_EDGE_PORT: 'eighty' }, 'NEBO_EDGE_PORT'],
    [{ NEBO_APPS_DOMAIN: 'a b' }, 'NEBO_APPS_DOMAIN'],
  ])('%j: ends with 1 and the name of the setting', async (env, name) => {
    const { exit, output } = start({ NEBO_HOME: await cleanup.folder(), ...env } as Record<string, string>);
    expect(await exit).toBe(1);
    expect(output()).toContain(name);
  });

  it('a port in use: ends with 1 and says which', async () => {
    const taken = await backend(cleanup, (_req, res) => res.end());
    const { exit, output } = start({
      NEBO_HOME: await cleanup.folder(),
      NEBO_EDGE_PORT: String(taken.port),
      NEBO_EDGE_TLS_PORT: '0',
    });
    // The test's server holds 127.0.0.1 only; listening on all addresses collides with it all the same.
    expect(await exit).toBe(1);
    expect(output()).toContain(String(taken.port));
  });
});
