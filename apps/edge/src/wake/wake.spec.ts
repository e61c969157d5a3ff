import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import { type Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { ask, backend, Cleanup, open, pause, replicas, serving, until } from '../../test/kit.js';
import { sleepy, stage } from '../../test/stage.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());

const errorOf = (text: string) => (JSON.parse(text) as { error: { code: string; message: string } }).error;

/** An upgrade through the edge. */
const upgrade = (port: number): Promise<{ status: number; socket: Duplex | null; text: string }> =>
  new Promise((resolve, reject) => {
    const call = http.request({
      host: '127.0.0.1',
      port,
      headers: {
        host: 'shop.apps.localhost',
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      },
      agent: false,
    });
    call.once('upgrade', (_answer, socket) => resolve({ status: 101, socket, text: '' }));
    call.once('response', (answer) =>
      buffer(answer).then(
        (bytes) => resolve({ status: answer.statusCode!, socket: null, text: bytes.toString() }),
        reject,
      ),
    );
    call.once('error', reject).end();
  });

describe('requests for an app that sleeps', () => {
  it('a burst of every kind is held, starts it once and is served whole', async () => {
    const on = await stage(cleanup);
    on.app.server.on('upgrade', (_req, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
      socket.pipe(socket);
    });
    const gate = on.close();
    const body = randomBytes(400_000);
    const sum = createHash('sha256').update(body).digest('hex');
    const empty = createHash('sha256').digest('hex');
    const asked = [
      ...Array.from({ length: 5 }, () => ask(on.port, '/')),
      ask(on.port, '/', { method: 'HEAD' }),
      ask(on.port, '/', { method: 'POST', body, headers: { 'content-length': String(body.length) } }),
      ask(on.port, '/', { method: 'PUT', body, headers: { 'transfer-encoding': 'chunked' } }),
      ask(on.port, '/', { method: 'POST', body, headers: { expect: '100-continue' } }),
    ];
    const socket = upgrade(on.port);
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 10);
    await pause(50);
    expect([on.desk.starts, on.desk.asked]).toEqual([1, 1]);
    gate.open();
    const answers = await Promise.all(asked);
    expect(answers.map(({ status, text }) => `${status} ${text}`)).toEqual([
      ...Array.from({ length: 5 }, () => `200 GET ${empty}`),
      '200 ',
      `200 POST ${sum}`,
      `200 PUT ${sum}`,
      `200 POST ${sum}`,
    ]);
    const opened = await socket;
    opened.socket!.write('echo');
    expect(String(await new Promise((resolve) => opened.socket!.once('data', resolve)))).toBe('echo');
    opened.socket!.destroy();
    expect(await on.figure('nebo_edge_held_requests')).toBe(0);
    expect(await on.figure('nebo_edge_cold_start_seconds_count')).toBe(1);
    // Awake: nobody asks the agent any more.
    expect((await ask(on.port, '/')).status).toBe(200);
    expect([on.desk.starts, on.desk.asked]).toEqual([1, 1]);
  });

  it('the body stays in the socket while nobody can take it', async () => {
    const on = await stage(cleanup);
    const gate = on.close();
    let sent = 0;
    const call = http.request({
      host: '127.0.0.1',
      port: on.port,
      method: 'POST',
      headers: { host: 'shop.apps.localhost' },
      agent: false,
    });
    const answered = new Promise<http.IncomingMessage>((resolve) => call.once('response', resolve));
    const hash = createHash('sha256');
    const total = 64 * 1024 * 1024;
    const chunk = randomBytes(1024 * 1024);
    const push = (): void => {
      while (sent < total) {
        sent += chunk.length;
        hash.update(chunk);
        if (!call.write(chunk)) return void call.once('drain', push);
      }
      call.end();
    };
    push();
    await until(() => on.desk.starts === 1);
    await pause(500);
    // What fits into the buffers of the sockets, no more.
    expect(sent).toBeLessThan(total / 2);
    gate.open();
    expect((await buffer(await answered)).toString()).toBe(`POST ${hash.digest('hex')}`);
  }, 30_000);

  it('more than may wait: 503 with Retry-After at once, for one app and for the whole edge', async () => {
    const on = await stage(cleanup, { tuning: { wakeQueue: 3, wakeQueueTotal: 5 } });
    on.plane.route('other.apps.localhost', sleepy('r2'));
    await until(() => on.edge.status().hosts === 2);
    on.desk.ports.set('r2', on.app.port);
    const gate = on.close();
    const first = Array.from({ length: 3 }, () => ask(on.port, '/'));
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 3);
    const full = await ask(on.port, '/', { method: 'POST', body: 'x' });
    expect(full.status).toBe(503);
    expect(full.headers['retry-after']).toBe('2');
    expect(errorOf(full.text)).toMatchObject({
      code: 'app_starting',
      message: 'The app is starting, and too many requests wait for it already.',
    });
    const host = 'other.apps.localhost';
    const others = Array.from({ length: 2 }, () => ask(on.port, '/', { host }));
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 5);
    expect((await ask(on.port, '/', { host })).status).toBe(503);
    expect((await upgrade(on.port)).status).toBe(503);
    gate.open();
    expect((await Promise.all([...first, ...others])).map(({ status }) => status)).toEqual(
      Array(5).fill(200),
    );
  });

  it('who leaves is dropped from the queue, also one that asked for a WebSocket', async () => {
    const on = await stage(cleanup);
    const gate = on.close();
    const leaving = http.get({ host: '127.0.0.1', port: on.port, headers: { host: 'shop.apps.localhost' } });
    leaving.on('error', () => undefined);
    const ws = http.get({
      host: '127.0.0.1',
      port: on.port,
      headers: {
        host: 'shop.apps.localhost',
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
        'sec-websocket-version': '13',
      },
    });
    ws.on('error', () => undefined);
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 2);
    leaving.destroy();
    ws.destroy();
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 0);
    const stays = ask(on.port, '/');
    gate.open();
    expect((await stays).status).toBe(200);
    expect(on.desk.starts).toBe(1);
  });

  it.each([
    ['crashed', 503, 'app_start_failed', 'The app does not start: it ends before it is ready.'],
    ['not_ready', 504, 'app_start_timeout', 'The app was started, but was not ready in time.'],
    ['failed', 503, 'app_start_failed', 'The app could not be started.'],
  ] as const)(
    'a start that %s: all who wait get %i and how long to stay away',
    async (why, status, code, message) => {
      const on = await stage(cleanup);
      const gate = on.close();
      const asked = [ask(on.port, '/'), ask(on.port, '/', { method: 'POST', body: 'x' })];
      const socket = upgrade(on.port);
      await until(async () => (await on.figure('nebo_edge_held_requests')) === 3);
      on.desk.refuse = why;
      on.desk.retryAfterMs = 6_100;
      gate.open();
      for (const answer of await Promise.all(asked)) {
        expect([answer.status, answer.headers['retry-after']]).toEqual([status, '7']);
        expect(errorOf(answer.text)).toMatchObject({ code, message });
      }
      expect((await socket).status).toBe(status);
      // And the next request tries again.
      on.desk.refuse = null;
      on.desk.awake.clear();
      expect((await ask(on.port, '/')).status).toBe(200);
    },
  );

  it('an agent that is away: 503 with a sentence after some patience, and served once it is back in time', async () => {
    const on = await stage(cleanup);
    on.desk.refuse = 'away';
    const none = await ask(on.port, '/');
    expect([none.status, none.headers['retry-after']]).toEqual([503, '5']);
    expect(errorOf(none.text)).toMatchObject({
      code: 'app_asleep',
      message: 'The app is asleep, and cannot be woken at the moment.',
    });
    const held = ask(on.port, '/', { method: 'POST', body: 'still here' });
    await pause(150);
    on.desk.refuse = null;
    expect((await held).status).toBe(200);
  });

  it('nobody to ask at all, and a start without end: 503 and 504', async () => {
    const alone = await serving(cleanup, sleepy());
    expect((await ask(alone.port, '/')).status).toBe(503);
    const on = await stage(cleanup, { tuning: { wakeTimeoutMs: 300 } });
    on.close();
    const late = await ask(on.port, '/');
    expect([late.status, errorOf(late.text).code]).toEqual([504, 'app_start_timeout']);
  });

  it('an agent that is killed while the app starts: the request is held on and served by the next one', async () => {
    const on = await stage(cleanup, { tuning: { wakePatienceMs: 10_000 } });
    const gate = on.close();
    const held = ask(on.port, '/', { method: 'POST', body: 'x' });
    await until(() => on.desk.starts === 1);
    on.desk.refuse = 'away';
    gate.open();
    await pause(300);
    on.desk.lose();
    on.desk.refuse = null;
    expect((await held).status).toBe(200);
  });

  it('works on while the control plane is away', async () => {
    const on = await stage(cleanup);
    on.plane.down = true;
    await on.edge.refresh();
    expect((await ask(on.port, '/')).status).toBe(200);
    expect(on.desk.starts).toBe(1);
  });
});

describe('an app that was woken', () => {
  it('is given back after its idle time, not while anything is under way; then it is started anew', async () => {
    const on = await stage(cleanup, {
      listener: (req, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        res.write('data: 1\n\n');
        if (req.url !== '/stream') res.end();
      },
    });
    on.desk.idleMs = 200;
    on.app.server.on('upgrade', (_req, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
      socket.pipe(socket);
    });
    const stream = await open(on.port, '/stream');
    await pause(700);
    expect(on.desk.awake.has('r1')).toBe(true);
    const { socket } = await upgrade(on.port);
    stream.destroy();
    await pause(700);
    expect(on.desk.awake.has('r1')).toBe(true);
    socket!.destroy();
    await until(() => !on.desk.awake.has('r1'));
    expect(await on.figure('nebo_edge_idle_stops_total')).toBe(1);
    expect((await ask(on.port, '/')).status).toBe(200);
    expect(on.desk.starts).toBe(2);
  });

  it('its hold is renewed as long as it is used, and its address left when it lapses', async () => {
    const on = await stage(cleanup);
    on.desk.leaseMs = 600;
    expect((await ask(on.port, '/')).status).toBe(200);
    await pause(1_500);
    expect((await ask(on.port, '/')).status).toBe(200);
    expect(on.desk.asked).toBe(1);
    // Without an answer the address is good until the hold lapses, not longer.
    on.desk.refuse = 'away';
    await pause(1_500);
    expect((await ask(on.port, '/')).status).toBe(503);
    on.desk.refuse = null;
    expect((await ask(on.port, '/')).status).toBe(200);
    expect(on.desk.asked).toBeGreaterThan(1);
  }, 20_000);

  it('an agent that is gone takes the address with it: nothing is sent there, another app may have it', async () => {
    const on = await stage(cleanup);
    expect((await ask(on.port, '/')).status).toBe(200);
    const second = await backend(cleanup, (_req, res) => res.end('second life'));
    on.desk.lose();
    on.desk.ports.set('r1', second.port);
    expect((await ask(on.port, '/')).text).toBe('second life');
  });

  it('a new version while requests wait for the old one: they go where the route leads', async () => {
    const on = await stage(cleanup, { tuning: { wakePatienceMs: 5_000 } });
    const gate = on.close();
    const waiting = [ask(on.port, '/'), ask(on.port, '/', { method: 'POST', body: 'x' })];
    const socket = upgrade(on.port);
    await until(async () => (await on.figure('nebo_edge_held_requests')) === 3);
    const next = await backend(cleanup, (_req, res) => res.end('next'));
    next.server.on('upgrade', (_req, taken: Duplex) =>
      taken.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
    );
    // The old replica is gone from the region, the new one runs always.
    on.desk.ports.delete('r1');
    on.plane.route('shop.apps.localhost', replicas(next.port));
    await on.edge.refresh();
    gate.open();
    expect((await Promise.all(waiting)).map(({ text }) => text)).toEqual(['next', 'next']);
    expect((await socket).status).toBe(101);
  });

  it('a route with a broken wake is left out, one that is not known reads as not running', async () => {
    const on = await stage(cleanup);
    on.plane.route('bad.apps.localhost', {
      kind: 'replicas',
      replicas: [],
      wake: { id: '' },
    });
    on.plane.route('none.apps.localhost', { kind: 'replicas', replicas: [] });
    await until(() => on.edge.status().hosts === 2);
    expect((await ask(on.port, '/', { host: 'bad.apps.localhost' })).status).toBe(404);
    expect((await ask(on.port, '/', { host: 'none.apps.localhost' })).status).toBe(503);
  });
});
