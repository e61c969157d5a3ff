import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SimulatedNetworkDriver } from '../src/drivers/simulated/networks.js';
import { type Observation, Reporter } from '../src/reconcile/reporter.js';
import { VpcWorker } from '../src/reconcile/vpc-worker.js';
import { eventually, later, localNetworksMissing, startAgent, testLog } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { networkDriverSuite } from './network-driver-suite.js';
import { floatingOf, portOf, specOf, Stand } from './network-kit.js';

const missing = await localNetworksMissing();

networkDriverSuite('simulated', async () => ({
  driver: new SimulatedNetworkDriver(),
  end: () => Promise.resolve(),
}));

networkDriverSuite(
  `local${missing ? ` (SKIPPED: ${missing})` : ''}`,
  async () => {
    const stand = await new Stand().start();
    return {
      driver: stand.driver,
      end: async () => expect(await stand.end()).toEqual([]),
    };
  },
  missing ? (describe.skip as unknown as typeof describe) : describe,
);

describe('the simulated network driver', () => {
  it('has an address fail on demand, with its reason', async () => {
    const driver = new SimulatedNetworkDriver({
      failure: (address) => (address === '203.0.113.7' ? 'the uplink is down' : null),
    });
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const [good, bad] = [floatingOf('203.0.113.6', ports[0]), floatingOf('203.0.113.7', ports[1])];
    const spec = { ...specOf('10.77.0.0/24', [...ports]), floating_ips: [good, bad] };
    expect(await driver.ensure(randomUUID(), 1, spec)).toMatchObject({
      state: 'active',
      facts: { real: false, floating_ips: [good.id], faults: { [bad.id]: 'the uplink is down' } },
    });
  });
});

describe('a network’s worker', () => {
  it('tries again what failed and what has a fault, without being asked, and reports what came of it', async () => {
    const said: Observation[] = [];
    const port = portOf('10.77.0.5', '05');
    const floating = floatingOf('203.0.113.6', port);
    let [calls, broken] = [0, true];
    const driver = new SimulatedNetworkDriver({ failure: () => (broken ? 'the uplink is down' : null) });
    const ensure = driver.ensure.bind(driver);
    driver.ensure = (...words) => {
      calls += 1;
      return calls === 1 ? Promise.reject(new Error('no more memory')) : ensure(...words);
    };
    const reporter = new Reporter(
      async (items) => void said.push(...items),
      testLog,
      () => undefined,
    );
    const id = randomUUID();
    const worker = new VpcWorker(id, { driver, reporter, log: testLog });
    const spec = { ...specOf('10.77.0.0/24', [port]), floating_ips: [floating] };
    worker.want({ kind: 'vpc', id, generation: 1, gone: false, spec });
    const last = () => said.at(-1);
    await eventually(() => last()?.state === 'error');
    expect(last()!.reason).toBe('the network could not be made: no more memory');
    await eventually(() => last()?.state === 'active');
    expect(last()!.facts).toMatchObject({ faults: { [floating.id]: 'the uplink is down' } });
    broken = false;
    await eventually(() => JSON.stringify(last()!.facts['floating_ips']) === `["${floating.id}"]`);
    await worker.stop();
    const after = calls;
    worker.want({ kind: 'vpc', id, generation: 2, gone: false, spec });
    await later(500);
    expect(calls).toBe(after);
    await reporter.stop(100);
  }, 30_000);
});

describe.each(missing ? (['simulated'] as const) : (['simulated', 'local'] as const))(
  'the agent and VPCs, driver %s',
  (name) => {
    let plane: FakeControlPlane;
    let home: string;
    beforeEach(async () => {
      plane = await new FakeControlPlane().start();
      home = await mkdtemp(join(tmpdir(), 'nebo-agent-'));
    });
    afterEach(async () => {
      await plane.stop();
      await rm(home, { recursive: true, force: true });
    });
    const start = (endsAll: boolean) => startAgent(plane, home, 'simulated', {}, null, name, endsAll);
    const spacesOf = async (id: string) =>
      (await readdir('/run/netns').catch(() => [])).filter((space) => space.includes(id));

    it('makes what is wanted, reports it, takes away what is gone and what nobody knows any more', async () => {
      const agent = await start(true);
      const [one, two] = [randomUUID(), randomUUID()];
      plane.want(one, 1, { kind: 'vpc', spec: specOf() });
      plane.want(two, 1, { kind: 'vpc', spec: specOf() });
      await plane.see(one, 'active');
      expect(await plane.see(two, 'active')).toMatchObject({ kind: 'vpc', generation: 1, reason: null });
      plane.want(one, 2, { kind: 'vpc', spec: { ...specOf(), gateway: '1.2.3.4' } });
      expect(await plane.see(one, 'error')).toMatchObject({ generation: 2, reason: expect.any(String) });
      // A database that was restored from a backup: what it wants is the truth again.
      plane.want(one, 1, { kind: 'vpc', spec: specOf() });
      expect(await plane.see(one, 'active')).toMatchObject({ generation: 1 });
      plane.want(one, 3, { kind: 'vpc', spec: specOf() }, true);
      expect(await plane.see(one, 'gone')).toMatchObject({ generation: 3 });
      plane.forget('vpc', two);
      await plane.see(two, 'gone');
      await agent.stop();
      expect(plane.observed.filter(({ kind }) => kind !== 'vpc')).toEqual([]);
    }, 60_000);

    it('an address that comes to its next network first works there once the last one has let it go', async () => {
      const agent = await start(true);
      const [one, two] = [randomUUID(), randomUUID()];
      const port = portOf('10.77.0.5', '05');
      const floating = floatingOf(`203.0.113.${120 + Math.floor(Math.random() * 120)}`, port);
      const spec = specOf('10.77.0.0/24', [port]);
      const attached = { ...spec, floating_ips: [floating] };
      plane.want(one, 1, { kind: 'vpc', spec: attached });
      const facts = async (id: string) =>
        plane.observed.filter((seen) => seen.id === id).at(-1)?.facts as Record<string, unknown> | undefined;
      await eventually(async () => JSON.stringify(await facts(one))?.includes(floating.id));
      plane.want(two, 1, { kind: 'vpc', spec: attached });
      await eventually(async () => Object.keys((await facts(two))?.['faults'] ?? {}).length > 0);
      plane.want(one, 2, { kind: 'vpc', spec });
      await eventually(
        async () => JSON.stringify((await facts(two))?.['floating_ips']) === `["${floating.id}"]`,
      );
      await agent.stop();
    }, 60_000);

    it('a stop leaves networks to the next agent; the stop of a whole installation does not', async () => {
      const id = randomUUID();
      const agent = await start(false);
      plane.want(id, 1, { kind: 'vpc', spec: specOf() });
      await plane.see(id, 'active');
      await agent.stop();
      expect(await spacesOf(id)).toHaveLength(name === 'local' ? 1 : 0);
      const next = await start(true);
      await eventually(() => next.status().state === 'connected');
      await next.stop();
      expect(await spacesOf(id)).toEqual([]);
    }, 60_000);

    it('an agent whose region another one takes leaves the networks alone', async () => {
      const id = randomUUID();
      const older = await start(true);
      plane.want(id, 1, { kind: 'vpc', spec: specOf() });
      await plane.see(id, 'active');
      const newer = await start(true);
      await eventually(() => older.status().state === 'superseded');
      await older.stop();
      expect(await spacesOf(id)).toHaveLength(name === 'local' ? 1 : 0);
      plane.want(id, 2, { kind: 'vpc', spec: specOf() }, true);
      await plane.see(id, 'gone');
      expect(await spacesOf(id)).toEqual([]);
      await newer.stop();
    }, 60_000);
  },
);
