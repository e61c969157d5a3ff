import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LifeUsage } from '@nebo/contracts';
import { type RegionAgent } from '../src/index.js';
import { eventually, later, localMissing, startAgent } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { helloServer, replicaOf, runOf } from './sources.js';

const missing = await localMissing();

/** Works until its own counter says so many milliseconds, and says what it counted. */
const burn = (ms: number) =>
  `node -e 'const u=()=>{const {user,system}=process.cpuUsage();return user+system};while(u()<${ms}000);console.log(u())'`;

for (const driver of ['simulated', 'local'] as const) {
  (driver === 'local' && missing !== null ? describe.skip : describe)(`usage, ${driver} driver`, () => {
    let plane: FakeControlPlane;
    let agent: RegionAgent;
    let home: string;
    beforeAll(async () => {
      plane = await new FakeControlPlane().start();
      home = await mkdtemp(join(tmpdir(), 'nebo-usage-'));
      agent = await startAgent(plane, home, driver, {}, null, 'simulated', false, 'here');
    }, 60_000);
    afterAll(async () => {
      await agent?.stop();
      await plane?.stop();
      await rm(home, { recursive: true, force: true });
    });
    const of = (id: string): LifeUsage[] => [...plane.usage.values()].filter((item) => item.id === id);
    /** The totals of all lives, once each has ended. */
    const ended = (id: string, lives: number) =>
      eventually(() => {
        const items = of(id);
        const over = items.filter(({ final }) => final).length === items.length;
        return over && new Set(items.map(({ life }) => life)).size === lives ? items : null;
      }, 20_000);
    const sum = (items: readonly LifeUsage[], field: 'cpu_us' | 'running_ms') =>
      items.reduce((total, item) => total + (item[field] ?? 0), 0);

    it('a run that works is measured as it counts itself, within a tenth, whatever its children do', async () => {
      const command = `${burn(1_000)} & ${burn(1_000)}; wait`;
      plane.want('burn', 1, await runOf(plane, 'burn', command, { vcpu: 2 }));
      await plane.see('burn', 'success', 60_000);
      const items = await ended('burn', 1);
      expect(items[0]).toMatchObject({ kind: 'run', real: driver === 'local' });
      expect(sum(items, 'running_ms')).toBeGreaterThan(500);
      if (driver === 'simulated')
        return expect(items.map(({ cpu_us }) => cpu_us)).toEqual(items.map(() => null));
      const own = plane.lines('run-burn').reduce((total, line) => total + Number(line), 0);
      expect(own).toBeGreaterThan(2_000_000);
      expect(sum(items, 'cpu_us')).toBeGreaterThan(own * 0.98);
      expect(sum(items, 'cpu_us')).toBeLessThan(own * 1.1 + 100_000);
    }, 90_000);

    // The rest is the same with and without a counter.
    if (driver === 'simulated') return;

    it('asleep it costs nothing; each start is a life of its own; one that runs always is not counted', async () => {
      const spec = await replicaOf(plane, 'nap', helloServer, { on_demand: { idle_ms: 300, proven: true } });
      plane.want('nap', 1, spec);
      plane.want('always', 1, await replicaOf(plane, 'always', helloServer));
      await plane.see('always', 'ready');
      await plane.see('nap', 'sleeping');
      const began = Date.now();
      for (const holder of ['a', 'b']) {
        await agent.desk.hold(holder, 'nap', new AbortController().signal);
        await agent.desk.release(holder, 'nap');
        await plane.see('nap', 'sleeping');
        await later(700);
      }
      const items = await ended('nap', 2);
      const awake = sum(items, 'running_ms');
      expect(awake).toBeGreaterThan(0);
      expect(awake).toBeLessThan(Date.now() - began - 1_300);
      const cpu = sum(items, 'cpu_us');
      await later(500);
      expect([sum(of('nap'), 'running_ms'), sum(of('nap'), 'cpu_us')]).toEqual([awake, cpu]);
      expect(of('always')).toEqual([]);
    }, 60_000);
  });
}
