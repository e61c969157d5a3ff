import { existsSync } from 'node:fs';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { type Route } from '@nebo/contracts';
import {
  artifact,
  ask,
  backend,
  Cleanup,
  ControlPlane,
  pause,
  replicas,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';

const host = 'shop.apps.localhost';
const cleanup = new Cleanup();
afterEach(() => cleanup.run());

const site = (text: string) => artifact({ 'index.html': text, 'a.txt': text });

describe('routes: from the control plane to what is served', () => {
  it('follows changes: added, replaced, removed, wildcard', async () => {
    const plane = new ControlPlane();
    const [one, two] = [await site('one'), await site('two')];
    plane.keep(one, two);
    const { edge, port } = await startEdge(cleanup, plane);
    await until(() => edge.status().ready);
    expect((await ask(port, '/')).status).toBe(404);

    plane.route(host, staticTarget(one));
    await until(async () => (await ask(port, '/')).text === 'one');
    plane.route(host, staticTarget(two));
    await until(async () => (await ask(port, '/')).text === 'two');
    plane.route('*.wild.org', staticTarget(one));
    await until(async () => (await ask(port, '/', { host: 'x.wild.org' })).text === 'one');
    expect((await ask(port, '/', { host: 'x.y.wild.org' })).status).toBe(404);
    expect((await ask(port, '/', { host: 'wild.org' })).status).toBe(404);
    plane.remove(host);
    await until(async () => (await ask(port, '/')).status === 404);
    // Deltas, not everything each time.
    expect(plane.fetches.filter(({ since }) => since === null)).toHaveLength(1);
  });

  it('before anything is known: 503 with Retry-After, not 404', async () => {
    const plane = new ControlPlane();
    plane.down = true;
    const { edge, port } = await startEdge(cleanup, plane);
    const answer = await ask(port, '/');
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
    expect(edge.status()).toMatchObject({ ready: false, version: null });
    await until(() => edge.status().lastError === 'control plane is down');
    plane.down = false;
    await edge.refresh();
    expect(edge.status()).toMatchObject({ ready: true, lastError: null });
  });

  it('`none` and no replicas: 503 with Retry-After and the reason, escaped', async () => {
    const plane = new ControlPlane();
    plane.route(host, { kind: 'none', reason: 'The first build <failed>.' });
    plane.route('empty.apps.localhost', replicas());
    const { edge, port } = await startEdge(cleanup, plane);
    await until(() => edge.status().ready);
    const page = await ask(port, '/', { headers: { accept: 'text/html' } });
    expect([page.status, page.headers['retry-after']]).toEqual([503, '5']);
    expect(page.text).toContain('The first build &#60;failed&#62;.');
    expect((await ask(port, '/')).text).toContain('"The first build <failed>."');
    expect((await ask(port, '/', { host: 'empty.apps.localhost' })).status).toBe(503);
  });

  it('a static route goes live when its artifact is here; until then the old one serves', async () => {
    const plane = new ControlPlane();
    const [one, two] = [await site('one'), await site('two')];
    plane.keep(one, two);
    plane.route(host, staticTarget(one));
    const { edge, port } = await startEdge(cleanup, plane);
    const applied: Route[] = [];
    edge.onApplied((_version, routes) => applied.push(...routes));
    await until(async () => (await ask(port, '/')).text === 'one');

    let release = (): void => undefined;
    plane.gate = new Promise((resolve) => (release = resolve));
    // What is served is told of a moment later.
    await until(() => plane.confirmed.length > 0);
    applied.length = 0;
    const next = plane.route(host, staticTarget(two));
    await until(() => plane.downloads.includes(two.sha256));
    expect((await ask(port, '/')).text).toBe('one');
    expect(edge.status().pending).toMatchObject([{ host, artifact_sha256: two.sha256, reason: null }]);
    expect(applied).toEqual([]);
    // Other hosts are not held up.
    plane.route('other.apps.localhost', { kind: 'none', reason: 'x' });
    await until(async () => (await ask(port, '/', { host: 'other.apps.localhost' })).status === 503);
    release();
    await until(async () => (await ask(port, '/')).text === 'two');
    await until(() =>
      plane.confirmed.some(({ routes }) => routes.some((route) => route.build_id === next.build_id)),
    );
    expect(applied.map((route) => route.build_id)).toContain(next.build_id);
  });

  it('a host that another account takes over never shows the files of the one before', async () => {
    const plane = new ControlPlane();
    const [one, two] = [await site('one'), await site('two')];
    plane.keep(one, two);
    plane.route(host, staticTarget(one), { account_id: 'first' });
    const { port } = await startEdge(cleanup, plane);
    await until(async () => (await ask(port, '/')).text === 'one');
    let release = (): void => undefined;
    plane.gate = new Promise((resolve) => (release = resolve));
    plane.route(host, staticTarget(two), { account_id: 'second' });
    await until(async () => (await ask(port, '/')).status === 503);
    release();
    await until(async () => (await ask(port, '/')).text === 'two');
  });

  it.each([
    ['a wrong hash', async (good: { body: Buffer }) => Buffer.from(good.body).fill(0, good.body.length - 4)],
    ['too few bytes', async (good: { body: Buffer }) => good.body.subarray(0, -1)],
    ['too many bytes', async (good: { body: Buffer }) => Buffer.concat([good.body, Buffer.alloc(9)])],
  ])('an artifact with %s is not served, told in the status, and tried again', async (_name, spoil) => {
    const plane = new ControlPlane();
    const [one, two] = [await site('one'), await site('two')];
    plane.keep(one);
    plane.keepAs(two.sha256, await spoil(two));
    plane.route(host, staticTarget(one));
    const { edge, port, home } = await startEdge(cleanup, plane);
    await until(async () => (await ask(port, '/')).text === 'one');
    plane.route(host, staticTarget(two));
    await until(() => edge.status().pending[0]?.reason?.includes('artifact') ?? false);
    expect((await ask(port, '/')).text).toBe('one');
    expect((await readdir(join(home, 'edge/artifacts'))).filter((name) => !name.startsWith('part-'))).toEqual(
      [one.sha256],
    );
    plane.keep(two);
    await until(async () => (await ask(port, '/')).text === 'two');
  });

  it('an archive with a link out of the site never goes live, nor leaves anything', async () => {
    const plane = new ControlPlane();
    for (const evil of [
      { 'index.html': 'evil', 'passwd.txt': '->/etc/passwd' },
      { 'index.html': 'evil', 'up.txt': '->../../../../../../etc/passwd' },
      { 'index.html': 'evil', '../../escaped.txt': 'x' },
    ] as Record<string, string>[]) {
      const [good, bad] = [await site('good'), await artifact(evil)];
      plane.keep(good, bad);
      plane.route(host, staticTarget(good));
      const { edge, port, home } = await startEdge(cleanup, plane);
      await until(async () => (await ask(port, '/')).text === 'good');
      plane.route(host, staticTarget(bad));
      await until(() => typeof edge.status().pending[0]?.reason === 'string');
      expect((await ask(port, '/')).text).toBe('good');
      for (const path of ['/passwd.txt', '/up.txt'])
        expect((await ask(port, path)).text).not.toContain('root:');
      await edge.stop();
      expect(existsSync(join(home, 'edge/escaped.txt'))).toBe(false);
      expect(await readdir(join(home, 'edge/artifacts'))).toEqual([good.sha256]);
    }
  });

  it('links inside a site work', async () => {
    const plane = new ControlPlane();
    const linked = await artifact({ 'real.txt': 'real', 'link.txt': '->real.txt' });
    plane.keep(linked);
    plane.route(host, staticTarget(linked));
    const { port } = await startEdge(cleanup, plane);
    await until(async () => (await ask(port, '/link.txt')).text === 'real');
  });
});

describe('routes: faults and restarts', () => {
  it('serves after a restart while the control plane is down, the same bytes, compressed forms too', async () => {
    const plane = new ControlPlane();
    const one = await artifact({ 'index.html': 'x'.repeat(5_000) });
    plane.keep(one);
    plane.route(host, staticTarget(one));
    const app = await backend(cleanup, (_req, res) => res.end('app'));
    plane.route('app.apps.localhost', replicas(app.port));
    const first = await startEdge(cleanup, plane);
    await until(() => first.edge.status().hosts === 2 && first.edge.status().pending.length === 0);
    const before = await ask(first.port, '/', { headers: { 'accept-encoding': 'br' } });
    await first.edge.stop();

    plane.down = true;
    plane.downloads = [];
    const second = await startEdge(cleanup, plane, { home: first.home });
    expect(second.edge.status()).toMatchObject({ ready: true, hosts: 2, pending: [], fetchedAt: null });
    await until(
      async () =>
        (await ask(second.port, '/', { headers: { 'accept-encoding': 'br' } })).headers[
          'content-encoding'
        ] === 'br',
    );
    const after = await ask(second.port, '/', { headers: { 'accept-encoding': 'br' } });
    expect([after.status, after.headers.etag, after.body.equals(before.body)]).toEqual([
      200,
      before.headers.etag,
      true,
    ]);
    expect((await ask(second.port, '/', { host: 'app.apps.localhost' })).text).toBe('app');
    expect(plane.downloads).toEqual([]);

    // What changed meanwhile is seen when it is back, by a full comparison.
    plane.remove('app.apps.localhost');
    plane.down = false;
    await until(async () => (await ask(second.port, '/', { host: 'app.apps.localhost' })).status === 404);
    expect(plane.fetches.at(-1)).toBeDefined();
  });

  it('a restart between a new route and its artifact goes on with the old one', async () => {
    const plane = new ControlPlane();
    const [one, two] = [await site('one'), await site('two')];
    plane.keep(one);
    plane.route(host, staticTarget(one));
    const first = await startEdge(cleanup, plane);
    await until(async () => (await ask(first.port, '/')).text === 'one');
    plane.route(host, staticTarget(two));
    await until(() => first.edge.status().pending.length === 1);
    await first.edge.stop();

    plane.down = true;
    const second = await startEdge(cleanup, plane, { home: first.home });
    expect((await ask(second.port, '/')).text).toBe('one');
    expect(second.edge.status().pending).toHaveLength(1);
    plane.keep(two);
    plane.down = false;
    await until(async () => (await ask(second.port, '/')).text === 'two');
  });

  it.each([
    ['broken', '{"format":1,"version":"1","rou'],
    ['foreign', '[]'],
    [
      'partly malformed',
      JSON.stringify({ format: 1, version: '1', routes: [{ host: 'BAD HOST' }], serving: [] }),
    ],
  ])('a %s routes file does not stop the start', async (_name, text) => {
    const plane = new ControlPlane();
    const one = await site('one');
    plane.keep(one);
    plane.route(host, staticTarget(one));
    const first = await startEdge(cleanup, plane);
    await first.edge.stop();
    await writeFile(join(first.home, 'edge/routes.json'), text);
    const second = await startEdge(cleanup, plane, { home: first.home });
    await until(async () => (await ask(second.port, '/')).text === 'one');
  });

  it('a damaged artifact on disk is fetched again', async () => {
    const plane = new ControlPlane();
    const one = await site('one');
    plane.keep(one);
    plane.route(host, staticTarget(one));
    const first = await startEdge(cleanup, plane);
    await until(async () => (await ask(first.port, '/')).text === 'one');
    await first.edge.stop();
    await writeFile(join(first.home, 'edge/artifacts', one.sha256, 'index.json'), '{');
    const second = await startEdge(cleanup, plane, { home: first.home });
    await until(async () => (await ask(second.port, '/')).text === 'one');
    expect(plane.downloads).toEqual([one.sha256, one.sha256]);
  });

  it('the routes file is whole at any moment and only for its owner', async () => {
    const plane = new ControlPlane();
    const { edge, home } = await startEdge(cleanup, plane);
    await until(() => edge.status().ready);
    const path = join(home, 'edge/routes.json');
    for (let i = 0; i < 100; i++) {
      plane.route(`h${i}.apps.localhost`, { kind: 'none', reason: 'x'.repeat(1_000) });
      await edge.refresh();
      if (existsSync(path)) JSON.parse(await readFile(path, 'utf8'));
    }
    await edge.stop();
    expect((JSON.parse(await readFile(path, 'utf8')) as { routes: unknown[] }).routes).toHaveLength(100);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('polls are held back by the source, refresh() asks at once', async () => {
    const plane = new ControlPlane();
    const { edge } = await startEdge(cleanup, plane);
    await until(() => plane.fetches.some(({ waitMs }) => waitMs === 30_000));
    const before = plane.fetches.length;
    await pause(200);
    expect(plane.fetches.length).toBe(before);
    plane.fetches = [];
    await Promise.all([edge.refresh(), edge.refresh(), edge.refresh()]);
    expect(plane.fetches.filter(({ waitMs }) => waitMs === 0).length).toBeLessThanOrEqual(2);
    expect(edge.status().lastError).toBeNull();
  });

  it('a source without deltas and long polls is not asked without pause', async () => {
    const plane = new ControlPlane();
    plane.plain = true;
    plane.route(host, { kind: 'none', reason: 'x' });
    const { edge } = await startEdge(cleanup, plane, { tuning: { idlePauseMs: 100 } });
    await pause(550);
    expect(plane.fetches.length).toBeLessThanOrEqual(8);
    plane.route(host, { kind: 'none', reason: 'y' });
    await until(() => edge.status().version === plane.current);
  });

  it('backs off while nobody answers, and a full comparison comes periodically', async () => {
    const plane = new ControlPlane();
    plane.down = true;
    const { edge } = await startEdge(cleanup, plane, { tuning: { fullEveryMs: 300, waitMs: 50 } });
    await pause(600);
    expect(plane.fetches.length).toBeLessThanOrEqual(4);
    plane.down = false;
    await until(() => edge.status().ready);
    plane.fetches = [];
    await until(() => plane.fetches.filter(({ since }) => since === null).length >= 2);
    expect(plane.fetches.some(({ since }) => since !== null)).toBe(true);
  });

  it('a source that never answers and ignores its signal does not hang the stop', async () => {
    const never = new Promise<never>(() => undefined);
    const { edge, port } = await startEdge(cleanup, { fetchRoutes: () => never, fetchArtifact: () => never });
    expect((await ask(port, '/')).status).toBe(503);
    const began = performance.now();
    await edge.stop();
    expect(performance.now() - began).toBeLessThan(2_000);
  });

  it('confirmations are repeated until they arrive, and after a restart', async () => {
    const plane = new ControlPlane();
    plane.failConfirm = 1;
    const route = plane.route(host, { kind: 'none', reason: 'x' });
    const first = await startEdge(cleanup, plane);
    await until(() => plane.confirmed.length > 0);
    expect(plane.confirmed[0]).toMatchObject({
      version: plane.current,
      routes: [{ build_id: route.build_id }],
    });
    await first.edge.stop();
    plane.confirmed = [];
    await startEdge(cleanup, plane, { home: first.home });
    await until(() => plane.confirmed.length > 0);
  });

  it('unused artifacts are removed, the newest kept for a way back', async () => {
    const plane = new ControlPlane();
    const { edge, port, home } = await startEdge(cleanup, plane, { tuning: { keepUnused: 2, keepMs: 0 } });
    const all = await Promise.all(['0', '1', '2', '3', '4', '5'].map(site));
    plane.keep(...all);
    for (const [i, one] of all.entries()) {
      plane.route(host, staticTarget(one));
      await until(async () => (await ask(port, '/')).text === String(i));
    }
    await edge.refresh();
    const there = async (): Promise<string[]> => (await readdir(join(home, 'edge/artifacts'))).sort();
    await until(async () => (await there()).length === 3);
    expect(await there()).toEqual([all[3]!, all[4]!, all[5]!].map(({ sha256 }) => sha256).sort());
    plane.downloads = [];
    plane.route(host, staticTarget(all[4]!));
    await until(async () => (await ask(port, '/')).text === '4');
    expect(plane.downloads).toEqual([]);
  });
});

describe('routes: switching under load', () => {
  it('at least 600 requests while the route is switched back and forth: each wholly one version, none failed', async () => {
    const plane = new ControlPlane();
    // Large enough that the body is streamed and a switch can fall into the midst of it.
    const make = (letter: string) =>
      artifact({ 'index.html': letter.repeat(400_000), 'small.txt': letter.repeat(50) });
    const sites = [await make('a'), await make('b')];
    plane.keep(...sites);
    const app = await backend(cleanup, (_req, res) => {
      res.write('c'.repeat(1_000));
      setImmediate(() => res.end('c'.repeat(1_000)));
    });
    const targets = [staticTarget(sites[0]!), staticTarget(sites[1]!), replicas(app.port)];
    plane.route(host, targets[0]!);
    const { edge, port } = await startEdge(cleanup, plane, { tuning: { keepUnused: 0, keepMs: 0 } });
    await until(async () => (await ask(port, '/small.txt')).status === 200);

    let done = false;
    let switches = 0;
    const switching = (async () => {
      while (!done) {
        plane.route(host, targets[++switches % 3]!);
        await edge.refresh();
        await until(() => edge.status().pending.length === 0);
        await pause(3);
      }
    })();
    const seen = new Set<string>();
    const agent = new http.Agent({ keepAlive: true, maxSockets: 12 });
    cleanup.add(() => agent.destroy());
    const worker = async (): Promise<void> => {
      for (let i = 0; i < 50 || switches < 30; i++) {
        const answer = await ask(port, i % 2 ? '/' : '/small.txt', { agent });
        expect(answer.status).toBe(200);
        expect(answer.text).toMatch(/^(a+|b+|c+)$/);
        expect(answer.body.length).toBe(Number(answer.headers['content-length'] ?? 2_000));
        seen.add(answer.text[0]!);
      }
    };
    try {
      await Promise.all(Array.from({ length: 12 }, worker));
    } finally {
      done = true;
      await switching;
    }
    expect([...seen].sort()).toEqual(['a', 'b', 'c']);
  });
});
