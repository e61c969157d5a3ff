import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ReplicaHold, type ReplicaSpec, WakeRefused } from '@nebo/contracts';
import { type RegionAgent } from '../src/index.js';
import { eventually, later, localMissing, startAgent } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { helloServer, replicaOf } from './sources.js';

const missing = await localMissing();

for (const driver of ['simulated', 'local'] as const) {
  (driver === 'local' && missing !== null ? describe.skip : describe)(`on demand, ${driver} driver`, () => {
    let plane: FakeControlPlane;
    let agent: RegionAgent;
    let home: string;
    beforeAll(async () => {
      plane = await new FakeControlPlane().start();
      home = await mkdtemp(join(tmpdir(), 'nebo-wake-'));
      agent = await startAgent(plane, home, driver, {}, null, 'simulated', false, 'here');
    }, 60_000);
    afterAll(async () => {
      await agent.stop();
      await plane.stop();
      await rm(home, { recursive: true, force: true });
    });

    const want = async (id: string, server: string, more: Partial<ReplicaSpec> = {}) =>
      plane.want(
        id,
        1,
        await replicaOf(plane, id, server, { on_demand: { idle_ms: 400, proven: false }, ...more }),
      );
    const hold = (id: string, holder = 'a') => agent.desk.hold(holder, id, new AbortController().signal);
    const refusal = async (work: Promise<unknown>): Promise<WakeRefused> =>
      work.then(
        () => Promise.reject(new Error('was not refused')),
        (error: WakeRefused) => error,
      );
    const hello = async ({ host, port }: ReplicaHold) =>
      (await (await fetch(`http://${host}:${port}/`)).json()) as { pid: number };
    const count = (id: string, text: string) =>
      plane.lines(`replica-${id}`).filter((line) => line.includes(text)).length;

    it('is started once to prove itself, then sleeps; asleep it has no process', async () => {
      await want('proof', helloServer);
      await plane.see('proof', 'ready');
      await plane.see('proof', 'sleeping');
      expect(plane.latest('proof')).toMatchObject({
        reason: null,
        facts: { wakeable: true, crashes: 0, ready_at: expect.any(String) as string },
      });
      expect(await readdir(join(home, 'runs'))).toEqual([]);
      await eventually(() => count('proof', 'it sleeps until the next request') === 1);
      expect(await agent.desk.renew('a', 'proof')).toBeNull();
    }, 40_000);

    it('one that was ready before begins asleep; holds that come together start it once', async () => {
      await want('twice', helloServer, { on_demand: { idle_ms: 400, proven: true } });
      await plane.see('twice', 'sleeping');
      await later(300);
      expect(count('twice', 'listening')).toBe(0);
      const holds = await Promise.all(
        Array.from({ length: 20 }, (_, i) => hold('twice', `edge-${i % 3}.${i}`)),
      );
      expect(new Set(holds.map(({ host, port }) => `${host}:${port}`)).size).toBe(1);
      expect(holds.every(({ started }) => started)).toBe(true);
      const { pid } = await hello(holds[0]!);
      expect(await hold('twice', 'late')).toMatchObject({ started: false, idle_ms: 400 });
      // Held, it does not sleep, however long nothing is sent.
      await later(1_500);
      expect((await hello(holds[0]!)).pid).toBe(pid);
      await eventually(() => count('twice', 'listening') === 1);
      const released = [...holds.keys()].map((i) => agent.desk.release(`edge-${i % 3}.${i}`, 'twice'));
      expect((await Promise.all(released)).includes(true)).toBe(false);
      expect(await agent.desk.release('late', 'twice')).toBe(true);
      // Nothing is lost in between: a hold waits for the end of the one life and gets the next.
      const next = await hold('twice', 'next');
      expect(next.started).toBe(true);
      expect((await hello(next)).pid).toBeDefined();
      await agent.desk.release('next', 'twice');
      await eventually(() => count('twice', 'listening') === 2);
    }, 60_000);

    it('a caller that leaves is forgotten; a release of another hold changes nothing', async () => {
      await want('left', helloServer, { on_demand: { idle_ms: 300, proven: true } });
      await plane.see('left', 'sleeping');
      const gone = new AbortController();
      const waiting = agent.desk.hold('gone', 'left', gone.signal);
      gone.abort(new Error('left'));
      await expect(waiting).rejects.toThrow('left');
      const held = await hold('left', 'stays');
      expect(await agent.desk.release('gone', 'left')).toBe(false);
      await later(800);
      await hello(held);
      expect(await agent.desk.release('stays', 'left')).toBe(true);
    }, 40_000);

    it('the number of a generation and the proof change nothing; another idle time makes it anew', async () => {
      await want('same', helloServer, { on_demand: { idle_ms: 60_000, proven: false } });
      const first = (await plane.see('same', 'ready')).facts['started_at'];
      const spec = await replicaOf(plane, 'same', helloServer, {
        on_demand: { idle_ms: 60_000, proven: true },
      });
      plane.want('same', 2, spec);
      await eventually(() => plane.latest('same')?.generation === 2);
      expect(plane.latest('same')).toMatchObject({ state: 'ready', facts: { started_at: first } });
      plane.want('same', 3, { ...spec, spec: { ...spec.spec, on_demand: { idle_ms: 200, proven: true } } });
      await eventually(() => plane.latest('same')?.state === 'sleeping');
    }, 40_000);

    it('a start that fails: refused with a word, asleep with the end of its log; pauses grow, no busy loop', async () => {
      const crash = `console.log('starting'); console.error('no database'); process.exit(3)`;
      await want('crash', crash, { on_demand: { idle_ms: 400, proven: true } });
      await plane.see('crash', 'sleeping');
      expect(await refusal(hold('crash'))).toMatchObject({ name: 'WakeRefused', code: 'crashed' });
      const seen = await eventually(() => {
        const latest = plane.latest('crash');
        return latest?.state === 'sleeping' && latest.reason !== null ? latest : null;
      });
      expect(seen.reason).toContain('exited with code 3: no database; ');
      expect(seen.reason).toContain('The end of its log:\n  starting\n  no database');
      expect(seen.facts['crashes']).toBe(3);
      const starts = () => plane.lines('replica-crash').filter((line) => line === 'starting').length;
      await eventually(() => starts() === 3);
      // Nobody asks, nothing starts.
      await later(1_500);
      expect(starts()).toBe(3);
      // A storm gets at most one start a pause, and after a few of them an answer at once, with how long to stay away.
      let last = await refusal(hold('crash'));
      for (let i = 0; i < 6 && last.retryAfterMs < 5_000; i++) last = await refusal(hold('crash'));
      expect(last.retryAfterMs).toBeGreaterThan(5_000);
      const begun = Date.now();
      for (let i = 0; i < 50; i++) await refusal(hold('crash'));
      expect(Date.now() - begun).toBeLessThan(5_000);
    }, 90_000);

    it('not ready in time: refused, asleep with what was found; the next one tries again', async () => {
      const server = `
        require('node:http').createServer((req, res) => {
          res.statusCode = Number(process.env.ANSWER);
          res.end();
        }).listen(process.env.PORT, process.env.HOST);`;
      await want('late', server, {
        ready_timeout_ms: 3_000,
        on_demand: { idle_ms: 400, proven: true },
        env: [{ name: 'ANSWER', value: '503', secret: false }],
      });
      await plane.see('late', 'sleeping');
      expect(await refusal(hold('late'))).toMatchObject({ code: 'not_ready' });
      const { reason } = await eventually(() => {
        const latest = plane.latest('late');
        return latest?.state === 'sleeping' && latest.reason !== null ? latest : null;
      });
      expect(reason).toContain('The app was not ready within 3 s: GET / ');
      expect(await refusal(hold('late'))).toMatchObject({ code: 'not_ready' });
    }, 60_000);

    it('never ready at all: failed for good, as any other; who waits is sent away', async () => {
      await want('never', `console.error('broken'); process.exit(1)`);
      expect(
        await refusal(eventually(() => agent.desk.hold('a', 'never', new AbortController().signal))),
      ).toMatchObject({ code: expect.stringMatching(/unknown|failed/) as string });
      expect((await plane.see('never', 'failed')).reason).toContain('exited with code 1: broken');
      expect(await refusal(hold('never'))).toMatchObject({ code: 'failed' });
    }, 40_000);

    it('a crash while it is held: the address is gone, the next hold starts it', async () => {
      const fragile = helloServer.replace('res.end(', `if (req.url === '/die') process.exit(9); res.end(`);
      await want('fragile', fragile, { on_demand: { idle_ms: 5_000, proven: true } });
      await plane.see('fragile', 'sleeping');
      const first = await hold('fragile');
      await fetch(`http://${first.host}:${first.port}/die`).catch(() => undefined);
      await eventually(async () => (await agent.desk.renew('a', 'fragile')) === null);
      expect(await plane.see('fragile', 'sleeping')).toMatchObject({ facts: { crashes: 1 } });
      const next = await hold('fragile', 'b');
      expect(next.started).toBe(true);
      await hello(next);
    }, 40_000);

    it('gone while it sleeps and while it starts: who waits is told', async () => {
      const slow = `setTimeout(() => { ${helloServer} }, 60_000)`;
      await want('away', slow, { on_demand: { idle_ms: 400, proven: true } });
      await plane.see('away', 'sleeping');
      const waiting = refusal(hold('away'));
      await plane.see('away', 'starting');
      plane.forget('replica', 'away');
      expect(await waiting).toMatchObject({ code: 'unknown' });
      await plane.see('away', 'gone');
      expect(await refusal(hold('away'))).toMatchObject({ code: 'unknown' });
      expect(await refusal(hold('nobody'))).toMatchObject({ code: 'unknown' });
    }, 40_000);
  });
}

describe('on demand without a way to be woken', () => {
  it('runs always, and says so', async () => {
    const plane = await new FakeControlPlane().start();
    const home = await mkdtemp(join(tmpdir(), 'nebo-wake-'));
    const agent = await startAgent(plane, home, 'simulated');
    try {
      plane.want(
        'web',
        1,
        await replicaOf(plane, 'web', helloServer, { on_demand: { idle_ms: 100, proven: true } }),
      );
      expect((await plane.see('web', 'ready')).facts['wakeable']).toBe(false);
      await later(700);
      expect(plane.latest('web')).toMatchObject({ state: 'ready' });
    } finally {
      await agent.stop();
      await plane.stop();
      await rm(home, { recursive: true, force: true });
    }
  }, 30_000);
});
