import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BackupFacts, type BlobRef } from '@nebo/contracts';
import { ControlPlaneError } from '../src/index.js';
import { type SimulatedAct, SimulatedMachineDriver } from '../src/drivers/simulated/machines.js';
import { type BlobAccess } from '../src/drivers/types.js';
import { BackupWorker } from '../src/reconcile/backup-worker.js';
import { type Observation, Reporter } from '../src/reconcile/reporter.js';
import { Places } from '../src/system/timing.js';
import { eventually, later, type Stage, stage, startAgent, testLog } from './agent-kit.js';
import { machineSpec, noBlobs } from './machine-driver-suite.js';

const never = new AbortController().signal;

describe('a backup’s worker', () => {
  const said: Observation[] = [];
  const vm = randomUUID();
  let dir: string;
  let stored: Map<string, Buffer>;
  beforeEach(async () => {
    said.length = 0;
    stored = new Map();
    dir = await mkdtemp(join(tmpdir(), 'nebo-backups-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  const blobs: BlobAccess = {
    ...noBlobs,
    put: async (blob: BlobRef, open) => {
      const parts: Buffer[] = [];
      for await (const part of open()) parts.push(part as Buffer);
      const bytes = Buffer.concat(parts);
      expect(blob).toEqual({ sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length });
      stored.set(blob.sha256, bytes);
    },
  };
  const workerWith = async (
    more: {
      failure?: (act: SimulatedAct) => string | null;
      backup?: number;
      put?: BlobAccess['put'];
      reserveBytes?: number;
      without?: boolean;
    } = {},
  ) => {
    const { failure = () => null, backup = 5, put = blobs.put, reserveBytes = 0, without = false } = more;
    const timings = { create: 1, start: 1, stop: 1, remove: 1, backup };
    const driver = new SimulatedMachineDriver({ dir: join(dir, 'machines'), timings, failure });
    await driver.start();
    const io = { signal: never, creating: () => undefined, blobs: noBlobs };
    if (!without) await driver.ensure(vm, machineSpec(), io);
    const reporter = new Reporter(
      async (items) => void said.push(...items),
      testLog,
      () => undefined,
    );
    const id = randomUUID();
    const scratch = join(dir, 'scratch');
    const parts = { driver, blobs: { ...blobs, put }, reporter, log: testLog, places: new Places(1) };
    return { id, driver, scratch, worker: new BackupWorker(id, { ...parts, dir: scratch, reserveBytes }) };
  };
  const item = (id: string, generation = 1, gone = false) => ({
    kind: 'backup' as const,
    id,
    generation,
    gone,
    spec: { account_id: randomUUID(), vm_id: vm },
  });
  const states = () => said.map(({ state }) => state);

  it('makes it once, says where its bytes are, and repeats that for a newer generation', async () => {
    let backups = 0;
    const { id, worker, scratch } = await workerWith({
      failure: (act) => {
        if (act === 'backup') backups += 1;
        return null;
      },
    });
    worker.want(item(id));
    worker.want(item(id));
    await eventually(() => states().includes('ready'));
    const { blob, ...facts } = said.at(-1)!.facts as unknown as BackupFacts;
    expect(facts).toEqual({ driver: 'simulated', real: false, consistency: 'stopped' });
    expect(stored.get(blob.sha256)!).toHaveLength(blob.bytes);
    expect(await readdir(scratch)).toEqual([]);
    worker.want(item(id, 2));
    await eventually(() => said.at(-1)?.generation === 2);
    expect(said.at(-1)).toMatchObject({ state: 'ready', facts: { blob } });
    worker.want(item(id, 3, true));
    await eventually(() => states().at(-1) === 'gone');
    expect(backups).toBe(1);
  });

  it.each([
    ['the driver’s words for the owner', () => 'the disk cannot be read', 'the disk cannot be read'],
    [
      'no word of the inside',
      () => {
        throw new Error('/secret/path: input/output error');
      },
      'The region could not make this backup. Try again.',
    ],
  ])('fails with %s', async (_, fault, reason) => {
    let tries = 0;
    const { id, worker, scratch } = await workerWith({
      failure: (act) => {
        if (act !== 'backup') return null;
        tries += 1;
        return fault();
      },
    });
    worker.want(item(id));
    await eventually(() => states().includes('failed'), 20_000);
    expect(said.at(-1)).toMatchObject({ reason, facts: { driver: 'simulated', real: false } });
    expect(tries).toBe(reason.startsWith('The region') ? 3 : 1);
    expect(await readdir(scratch)).toEqual([]);
  });

  it('fails when there is no such machine, and when the host has no room', async () => {
    const { id, worker } = await workerWith({ without: true });
    worker.want(item(id));
    await eventually(() => states().includes('failed'));
    expect(said.at(-1)!.reason).toBe('there is no such machine');
    const full = await workerWith({ reserveBytes: Number.MAX_SAFE_INTEGER, backup: 60_000 });
    full.worker.want(item(full.id));
    await eventually(() => said.at(-1)?.id === full.id && said.at(-1)?.state === 'failed');
    expect(said.at(-1)!.reason).toContain('no room');
    expect(await readdir(full.scratch)).toEqual([]);
  });

  it('sends the bytes again to a control plane that was away; what it refuses about them is an end', async () => {
    const faults = [new Error('connection refused'), new ControlPlaneError(503, 'not now')];
    const away = await workerWith({
      put: async (blob, open, signal) => {
        const fault = faults.shift();
        if (fault) throw fault;
        await blobs.put(blob, open, signal);
      },
    });
    away.worker.want(item(away.id));
    await eventually(() => states().includes('ready'), 20_000);
    expect(stored.size).toBe(1);
    const refused = await workerWith({ put: () => Promise.reject(new ControlPlaneError(413, 'too large')) });
    refused.worker.want(item(refused.id));
    await eventually(() => said.at(-1)?.id === refused.id && said.at(-1)?.state === 'failed');
    expect(await readdir(refused.scratch)).toEqual([]);
  });

  it('is broken off when it is not wanted any more, and leaves nothing', async () => {
    const { id, worker, scratch } = await workerWith({ backup: 60_000 });
    worker.want(item(id));
    await eventually(() => states().includes('creating'));
    worker.want(item(id, 2, true));
    await eventually(() => states().at(-1) === 'gone');
    expect(states()).not.toContain('failed');
    expect(await readdir(scratch).catch(() => [])).toEqual([]);
    const another = await workerWith({ backup: 60_000 });
    another.worker.want(item(another.id));
    await another.worker.vanished();
    expect(stored.size).toBe(0);
  });
});

describe('backups of an agent', () => {
  let on: Stage;
  beforeEach(async () => {
    on = await stage('simulated');
  });
  afterEach(() => on?.end());

  it('go into the blob store of machines and come out of it as a disk', async () => {
    const [vm, backup] = [randomUUID(), randomUUID()];
    on.plane.want(vm, 1, { kind: 'vm', spec: machineSpec() });
    await on.plane.see(vm, 'running');
    on.plane.putAnswers.push(503);
    on.plane.want(backup, 1, { kind: 'backup', spec: { account_id: 'a', vm_id: vm } });
    const { facts } = await on.plane.see(backup, 'ready');
    const { blob } = facts as unknown as BackupFacts;
    expect(facts).toMatchObject({ driver: 'simulated', real: false, consistency: 'crash' });
    expect(on.plane.blobs.get(blob.sha256)).toHaveLength(blob.bytes);
    on.plane.want(vm, 2, { kind: 'vm', spec: machineSpec({ restore: { number: 1, blob } }) });
    await eventually(() => on.plane.latest(vm)?.facts['restored'] === 1);
    expect(await on.plane.see(vm, 'running')).toMatchObject({ generation: 2 });
  });

  it('begin again with the next agent, which sweeps away what a killed one left', async () => {
    const [vm, backup] = [randomUUID(), randomUUID()];
    on.plane.want(vm, 1, { kind: 'vm', spec: machineSpec() });
    await on.plane.see(vm, 'running');
    // Nothing is taken: the backup does not come to an end.
    on.plane.putAnswers.push(...Array<number>(50).fill(503));
    on.plane.want(backup, 1, { kind: 'backup', spec: { account_id: 'a', vm_id: vm } });
    await on.plane.see(backup, 'creating');
    await eventually(() => on.plane.putAnswers.length < 50);
    await on.agent.stop();
    expect(on.plane.latest(backup)?.state).toBe('creating');
    on.plane.putAnswers.length = 0;
    const next = await startAgent(on.plane, on.home, 'simulated');
    await on.plane.see(backup, 'ready');
    expect(await readdir(join(on.home, 'backups'))).toEqual([]);
    on.plane.forget('backup', backup);
    await later(50);
    await next.stop();
  });

  it('the region says what it can hold when it is taken', async () => {
    await eventually(() => on.plane.capacity);
    expect(on.plane.capacity).toEqual({ vcpu: 1_000_000, memory_mb: 1_000_000_000, disk_gb: 1_000_000_000 });
  });
});
