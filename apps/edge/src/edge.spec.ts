import { Registry } from 'prom-client';
import { ask, backend, Cleanup, open, pause, replicas, serving, until } from '../test/kit.js';
import { type AccessEntry } from './index.js';

const host = 'shop.apps.localhost';
const cleanup = new Cleanup();
afterEach(() => cleanup.run());

describe('observation and stop', () => {
  it('access entries and metrics', async () => {
    const registry = new Registry();
    const access: AccessEntry[] = [];
    const app = await backend(cleanup, (_req, res) => res.end('hello'));
    const { port } = await serving(cleanup, replicas(app.port), {
      registry,
      onAccess: (entry) => access.push(entry),
    });
    await ask(port, '/a?token=secret', { headers: { 'x-request-id': 'client-id-1', 'user-agent': 'test' } });
    await ask(port, '/', { host: 'nobody.org' });
    await until(() => access.length === 2);
    expect(access[0]).toMatchObject({
      host,
      path: '/a',
      method: 'GET',
      status: 200,
      kind: 'replicas',
      request_id: 'client-id-1',
      user_agent: 'test',
      app_id: `app-${host}`,
      account_id: 'acc',
      replica_id: 'r0',
      aborted: false,
      secure: false,
      remote: '127.0.0.1',
    });
    expect(access[0]!.bytes).toBeGreaterThan(5);
    expect(access[1]).toMatchObject({ host: 'nobody.org', status: 404, kind: 'edge', app_id: null });
    expect(JSON.stringify(access)).not.toContain('secret');
    const text = await registry.metrics();
    expect(text).toContain('nebo_edge_requests_total{kind="replicas",status="200",protocol="h1"} 1');
    expect(text).toContain('nebo_edge_requests_total{kind="edge",status="404",protocol="h1"} 1');
    expect(text).toContain('nebo_edge_routes 1');
    expect(text).toMatch(/nebo_edge_request_seconds_count\{kind="replicas"\} 1/);
  });

  it('a hook that throws harms nobody, and two edges share a registry', async () => {
    const registry = new Registry();
    const app = await backend(cleanup, (_req, res) => res.end('hello'));
    const onAccess = (): void => {
      throw new Error('full');
    };
    for (let i = 0; i < 2; i++) {
      const { port } = await serving(cleanup, replicas(app.port), { registry, onAccess });
      expect((await ask(port, '/')).text).toBe('hello');
    }
  });

  it('stop lets a running answer end, refuses new connections, and cuts what does not end', async () => {
    const app = await backend(cleanup, (req, res) => {
      if (req.url === '/slow') setTimeout(() => res.end('done'), 200);
      else res.writeHead(200).write('for ever');
    });
    const { port, edge } = await serving(cleanup, replicas(app.port));
    const slow = ask(port, '/slow');
    const endless = await open(port, '/stream');
    const cut = new Promise((resolve) =>
      endless
        .on('error', () => resolve(true))
        .on('close', () => resolve(true))
        .resume(),
    );
    await pause(50);
    const began = performance.now();
    const stopped = edge.stop();
    expect((await slow).text).toBe('done');
    await expect(ask(port, '/')).rejects.toThrow('ECONNREFUSED');
    await stopped;
    expect(performance.now() - began).toBeLessThan(1_500);
    expect(await cut).toBe(true);
    await edge.stop();
  });
});
