import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type SimulatedAct, SimulatedMachineDriver } from '../src/drivers/simulated/machines.js';
import { type MachineObservation } from '../src/drivers/machine-driver.js';
import { NetworkMissing } from '../src/drivers/types.js';
import { MachineWorker } from '../src/reconcile/machine-worker.js';
import { type Observation, Reporter } from '../src/reconcile/reporter.js';
import { type MachineSpec } from '@nebo/contracts';
import { eventually, later, type Stage, stage, startAgent, testLog } from './agent-kit.js';
import { machineDriverSuite, machineSpec, noBlobs } from './machine-driver-suite.js';

const quick = { create: 5, start: 10, stop: 5, remove: 5 };

machineDriverSuite('simulated', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'nebo-machines-'));
  return {
    driver: new SimulatedMachineDriver({ dir, timings: quick }),
    revive: () => Promise.resolve(new SimulatedMachineDriver({ dir, timings: quick })),
    end: () => rm(dir, { recursive: true, force: true }),
  };
});

describe('the simulated driver', () => {
  it('drops half a file of a killed process, and keeps no name, key or user data', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'nebo-machines-'));
    await writeFile(
      join(dir, 'machines.log'),
      `{"id":"a","state":"stopped"}\n{"id":"a","gone":true}\n{"id":`,
    );
    const driver = new SimulatedMachineDriver({ dir, timings: quick });
    await driver.start();
    expect(await driver.list()).toEqual([]);
    await driver.ensure(randomUUID(), machineSpec({ name: 'secret-name', user_data: 'password' }), {
      signal: new AbortController().signal,
      creating: () => undefined,
      blobs: noBlobs,
    });
    const [file] = await readdir(dir);
    expect(await readFile(join(dir, file!), 'utf8')).not.toMatch(/secret|password/);
    await rm(dir, { recursive: true, force: true });
  });
});

describe('the simulated driver’s file', () => {
  let dir: string;
  const file = () => join(dir, 'machines.log');
  const bytes = async () => (await readFile(file())).length;
  const lines = async () => (await readFile(file(), 'utf8')).split('\n').filter(Boolean).length;
  const io = { signal: new AbortController().signal, creating: () => undefined, blobs: noBlobs };
  const still = { create: 0, restore: 0, start: 0, stop: 0, backup: 0, remove: 0 };
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-machines-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  it('holds 100,000 machines; one more costs a line, as it does among ten', async () => {
    const size = { boot: 1, started_at: null, restored: 0, vcpu: 1, memory_mb: 1024, disk_gb: 10 };
    const old = Array.from({ length: 100_000 }, (_, index) => ({
      id: `old-${index}`,
      state: 'stopped',
      ...size,
    }));
    await writeFile(file(), old.map((each) => JSON.stringify(each)).join('\n'));
    const driver = new SimulatedMachineDriver({ dir, timings: still });
    await driver.start();
    const before = await bytes();
    const ids = Array.from({ length: 50 }, () => randomUUID());
    await Promise.all(ids.map((id) => driver.ensure(id, machineSpec(), io)));
    expect((await bytes()) - before).toBeLessThan(50 * 300);
    expect(await driver.list()).toHaveLength(100_050);
    await Promise.all(ids.map((id) => driver.remove(id)));
    const next = new SimulatedMachineDriver({ dir, timings: still });
    await next.start();
    expect(await next.list()).toHaveLength(100_000);
    expect(await next.ensure('old-99999', machineSpec({ disk_gb: 10 }), io)).toMatchObject({
      state: 'stopped',
    });
  }, 60_000);

  it('does not grow with the changes of one machine, and loses none that came together', async () => {
    const driver = new SimulatedMachineDriver({ dir, timings: still });
    await driver.start();
    const [one, ...others] = Array.from({ length: 40 }, () => randomUUID());
    for (const id of [one!, ...others]) await driver.ensure(id, machineSpec(), io);
    for (let boot = 1; boot <= 1_500; boot += 1)
      await driver.power(one!, 'restart', machineSpec(), boot, io.signal);
    expect(await lines()).toBeLessThan(1_200);
    await Promise.all(others.map((id) => driver.power(id, 'start', machineSpec(), 7, io.signal)));
    const next = new SimulatedMachineDriver({ dir, timings: still });
    await next.start();
    expect((await next.list()).map(({ facts }) => facts.boot).sort()).toEqual(
      [1_500, ...others.map(() => 7)].sort(),
    );
  }, 60_000);

  it('a file that cannot be written is an error, and half a line spoils nothing that follows', async () => {
    const driver = new SimulatedMachineDriver({ dir, timings: still });
    await driver.start();
    await driver.ensure('kept', machineSpec(), io);
    await rm(file());
    await mkdir(file());
    await expect(driver.ensure('lost', machineSpec(), io)).rejects.toThrow();
    expect(await driver.list()).toHaveLength(1);
    await rm(file(), { recursive: true });
    // Half a line, as a full disk leaves it.
    await writeFile(file(), '{"id":"half","sta');
    await driver.ensure('next', machineSpec(), io);
    const after = new SimulatedMachineDriver({ dir, timings: still });
    await after.start();
    expect((await after.list()).map(({ id }) => id)).toEqual(['next']);
  });
});

describe('a machine’s worker', () => {
  const said: Observation[] = [];
  let dir: string;
  beforeEach(async () => {
    said.length = 0;
    dir = await mkdtemp(join(tmpdir(), 'nebo-machines-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  const workerWith = async (failure: (act: SimulatedAct, spec: MachineSpec | null) => string | null) => {
    const driver = new SimulatedMachineDriver({ dir, timings: quick, failure });
    await driver.start();
    const reporter = new Reporter(
      async (items) => void said.push(...items),
      testLog,
      () => undefined,
    );
    const id = randomUUID();
    return { id, driver, worker: new MachineWorker(id, { driver, reporter, blobs: noBlobs, log: testLog }) };
  };
  const item = (id: string, generation: number, spec: Partial<MachineSpec> = {}, gone = false) => ({
    kind: 'vm' as const,
    id,
    generation,
    gone,
    spec: machineSpec(spec),
  });
  const state = (generation: number) => said.filter((each) => each.generation === generation).at(-1)?.state;

  it('what fails says why and waits for a newer generation', async () => {
    let acts = 0;
    const { id, worker } = await workerWith((act, spec) => {
      if (act === 'start') acts += 1;
      return act === 'start' && spec?.name.includes('fail-start') ? 'it does not boot' : null;
    });
    worker.want(item(id, 1, { name: 'fail-start' }));
    await eventually(() => state(1) === 'failed');
    expect(said.at(-1)).toMatchObject({
      reason: 'it does not boot',
      facts: { driver: 'simulated', real: false },
    });
    worker.want(item(id, 1, { name: 'fail-start' }));
    await later(100);
    expect(acts).toBe(1);
    worker.want(item(id, 2, { name: 'well' }));
    await eventually(() => state(2) === 'running');
    await worker.stop();
  });

  it('what the host’s tools refuse is tried three times, then it has failed without a word of the inside', async () => {
    let acts = 0;
    const { id, worker } = await workerWith((act) => {
      if (act !== 'create') return null;
      acts += 1;
      throw new Error('/secret/path: no space left');
    });
    worker.want(item(id, 1));
    await eventually(() => state(1) === 'failed');
    expect(acts).toBe(3);
    expect(said.at(-1)!.reason).not.toContain('secret');
    await worker.stop();
  });

  it('a network that has not come yet is waited for, however long: the machine starts when it is there', async () => {
    let missing = 4;
    class Early extends SimulatedMachineDriver {
      override async power(...all: Parameters<SimulatedMachineDriver['power']>): Promise<MachineObservation> {
        if (missing-- > 0) throw new NetworkMissing('the network x has not come');
        return super.power(...all);
      }
    }
    const driver = new Early({ dir, timings: quick });
    await driver.start();
    const reporter = new Reporter(
      async (items) => void said.push(...items),
      testLog,
      () => undefined,
    );
    const id = randomUUID();
    const worker = new MachineWorker(id, { driver, reporter, blobs: noBlobs, log: testLog });
    worker.want(item(id, 1));
    await eventually(() => state(1) === 'running');
    expect(said.filter(({ state }) => state === 'failed')).toEqual([]);
    await worker.stop();
  });

  it('a newer word ends a step that runs; an older one is ignored', async () => {
    const slow = { create: 10, start: 60_000, stop: 5, remove: 5 };
    const driver = new SimulatedMachineDriver({ dir, timings: slow });
    await driver.start();
    const reporter = new Reporter(
      async (items) => void said.push(...items),
      testLog,
      () => undefined,
    );
    const id = randomUUID();
    const worker = new MachineWorker(id, { driver, reporter, blobs: noBlobs, log: testLog });
    worker.want(item(id, 1));
    await eventually(() => state(1) === 'starting');
    worker.want(item(id, 2, { power: 'stopped' }));
    await eventually(() => state(2) === 'stopped');
    worker.want(item(id, 1));
    worker.want(item(id, 3, {}, true));
    await eventually(() => state(3) === 'gone');
    expect(await driver.list()).toEqual([]);
    await worker.stop();
  });
});

describe('machines of an agent', () => {
  let on: Stage;
  beforeEach(async () => {
    on = await stage('simulated');
  });
  afterEach(() => on?.end());

  it('are made, stopped, started, restarted and removed as wanted', async () => {
    const id = randomUUID();
    const want = (generation: number, spec: Partial<MachineSpec>, gone = false) =>
      on.plane.want(id, generation, { kind: 'vm', spec: machineSpec(spec) }, gone);
    want(1, {});
    expect(await on.plane.see(id, 'running')).toMatchObject({
      generation: 1,
      facts: { driver: 'simulated', real: false, boot: 1 },
    });
    want(2, { power: 'stopped' });
    expect(await on.plane.see(id, 'stopped')).toMatchObject({ generation: 2 });
    want(3, { boot: 2 });
    expect(await on.plane.see(id, 'running')).toMatchObject({ generation: 3, facts: { boot: 2 } });
    want(4, { boot: 3 });
    await eventually(() => on.plane.latest(id)?.facts['boot'] === 3);
    want(5, {}, true);
    expect(await on.plane.see(id, 'gone')).toMatchObject({ generation: 5 });
  });

  it('follow a control plane whose database was restored from a backup: what it wants now counts, although it is older', async () => {
    const [stopped, running] = [randomUUID(), randomUUID()];
    const want = (id: string, generation: number, power: MachineSpec['power']) =>
      on.plane.want(id, generation, { kind: 'vm', spec: machineSpec({ power }) });
    for (const id of [stopped, running]) want(id, 2, 'running');
    for (const id of [stopped, running]) await on.plane.see(id, 'running');
    want(stopped, 3, 'stopped');
    await on.plane.see(stopped, 'stopped');
    want(stopped, 2, 'running');
    want(running, 1, 'stopped');
    expect(await on.plane.see(stopped, 'running')).toMatchObject({ generation: 2 });
    expect(await on.plane.see(running, 'stopped')).toMatchObject({ generation: 1 });
    want(stopped, 3, 'stopped');
    expect(await on.plane.see(stopped, 'stopped')).toMatchObject({ generation: 3 });
  });

  it('go on while the agent is away: the next one finds them and removes what nobody wants any more', async () => {
    const [kept, dropped] = [randomUUID(), randomUUID()];
    for (const id of [kept, dropped]) on.plane.want(id, 1, { kind: 'vm', spec: machineSpec() });
    const before = await on.plane.see(kept, 'running');
    await on.plane.see(dropped, 'running');
    await on.agent.stop();
    on.plane.forget('vm', dropped);
    on.plane.observed.length = 0;
    const next = await startAgent(on.plane, on.home, 'simulated');
    const after = await on.plane.see(kept, 'running');
    // The same machine, not a new one.
    expect(after.facts).toEqual(before.facts);
    expect(on.plane.observed.filter(({ id }) => id === kept).map(({ state }) => state)).toEqual(['running']);
    const ids = async () =>
      [
        ...(await readFile(join(on.home, 'machines/machines.log'), 'utf8')).matchAll(
          /"id":"([^"]+)"(,"gone")?/g,
        ),
      ].map(([, id, gone]) => `${id}${gone ?? ''}`);
    await eventually(async () => (await ids()).includes(`${dropped},"gone"`));
    expect(await ids()).not.toContain(`${kept},"gone"`);
    await next.stop();
  });
});
