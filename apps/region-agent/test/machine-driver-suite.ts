import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type MachineSpec } from '@nebo/contracts';
import { emptyQcow2 } from '../src/drivers/simulated/machines.js';
import { type EnsureIo, type MachineDriver } from '../src/drivers/machine-driver.js';

/** A driver under test. */
export interface MachineStage {
  driver: MachineDriver;
  /** Another driver on what this one made, as after a `kill -9` of the agent; the old one is not used again. */
  revive(): Promise<MachineDriver>;
  end(): Promise<void>;
}

export const machineSpec = (more: Partial<MachineSpec> = {}): MachineSpec => ({
  account_id: randomUUID(),
  name: 'web',
  hostname: 'web',
  vcpu: 1,
  memory_mb: 128,
  disk_gb: 1,
  image: { id: randomUUID(), filename: 'tiny-1.qcow2', blob: null },
  restore: null,
  default_user: 'me',
  ssh_keys: [],
  user_data: null,
  install_guest_agent: false,
  interfaces: [],
  power: 'running',
  boot: 1,
  ...more,
});

const never = new AbortController().signal;

/** Blobs that nobody may ask for. */
export const noBlobs: EnsureIo['blobs'] = {
  get: () => Promise.reject(new Error('no blob is expected here')),
  put: () => Promise.reject(new Error('no blob is expected here')),
};

/** Bytes of a backup, as the control plane hands them out. */
function blobOf(bytes: Buffer) {
  const blob = { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length };
  let asked = 0;
  const blobs: EnsureIo['blobs'] = {
    ...noBlobs,
    get: async () => {
      asked += 1;
      return Readable.from([bytes]);
    },
  };
  return { blob, blobs, asked: () => asked };
}

/**
 * What every machine driver owes, whatever it runs machines on.
 * @param options `starts` false: without what starts machines, for a driver whose machines are real and take long
 */
export function machineDriverSuite(
  name: string,
  make: () => Promise<MachineStage>,
  { starts = true }: { starts?: boolean } = {},
): void {
  const started = starts ? it : () => undefined;
  describe(`machines by the driver ${name}`, () => {
    let stage: MachineStage;
    beforeEach(async () => {
      stage = await make();
      await stage.driver.start();
    });
    afterEach(() => stage?.end());

    const made = async (id: string, spec = machineSpec()) => {
      let creations = 0;
      const creating = () => void (creations += 1);
      const seen = await stage.driver.ensure(id, spec, { signal: never, creating, blobs: noBlobs });
      return { seen, creations };
    };
    const find = async (id: string, driver = stage.driver) =>
      (await driver.list()).find((machine) => machine.id === id);

    it('makes a machine stopped and once, however often it is asked', async () => {
      const id = randomUUID();
      const first = await made(id);
      expect(first).toMatchObject({ creations: 1, seen: { id, state: 'stopped', facts: { boot: 0 } } });
      expect(first.seen.facts).toMatchObject({ driver: stage.driver.name, real: stage.driver.real });
      expect(await made(id)).toEqual({ creations: 0, seen: first.seen });
      expect(await stage.driver.list()).toHaveLength(1);
    });

    started('starts, stops and restarts, each once for its number', async () => {
      const [id, spec] = [randomUUID(), machineSpec()];
      await made(id, spec);
      const power = (verb: 'start' | 'stop' | 'restart', boot: number) =>
        stage.driver.power(id, verb, spec, boot, never);
      const started = await power('start', 1);
      expect(started).toMatchObject({ state: 'running', facts: { boot: 1, started_at: expect.any(String) } });
      expect((await power('start', 1)).facts.started_at).toBe(started.facts.started_at);
      expect((await power('restart', 1)).facts.started_at).toBe(started.facts.started_at);
      const again = await power('restart', 2);
      expect(again).toMatchObject({ state: 'running', facts: { boot: 2 } });
      expect(again.facts.started_at).not.toBe(started.facts.started_at);
      expect(await power('stop', 2)).toMatchObject({
        state: 'stopped',
        facts: { boot: 2, started_at: null },
      });
      expect(await power('stop', 2)).toMatchObject({ state: 'stopped' });
      expect((await made(id, spec)).seen.state).toBe('stopped');
      expect(await power('start', 2)).toMatchObject({ state: 'running' });
    });

    it('leaves nothing of a removed machine, and removes what is not there', async () => {
      const id = randomUUID();
      const spec = machineSpec();
      await made(id, spec);
      if (starts) await stage.driver.power(id, 'start', spec, 1, never);
      await Promise.all([stage.driver.remove(id), stage.driver.remove(id)]);
      await stage.driver.remove(randomUUID());
      expect(await stage.driver.list()).toEqual([]);
      await expect(stage.driver.power(id, 'start', spec, 1, never)).rejects.toThrow(
        'there is no such machine',
      );
    });

    it('a step that is broken off leaves what was there before it', async () => {
      const [id, spec] = [randomUUID(), machineSpec()];
      const stop = new AbortController();
      const creating = () => stop.abort();
      await expect(
        stage.driver.ensure(id, spec, { signal: stop.signal, creating, blobs: noBlobs }),
      ).rejects.toThrow();
      expect(await find(id)).toBeUndefined();
      await made(id, spec);
      const late = AbortSignal.abort();
      await expect(stage.driver.power(id, 'start', spec, 1, late)).rejects.toThrow();
      expect(await find(id)).toMatchObject({ state: 'stopped' });
    });

    started('the next driver finds what a killed one made, in the state it had', async () => {
      const [running, stopped, spec] = [randomUUID(), randomUUID(), machineSpec()];
      await made(running, spec);
      await made(stopped, spec);
      const before = await stage.driver.power(running, 'start', spec, 3, never);
      const next = await stage.revive();
      await next.start();
      expect(await find(running, next)).toEqual(before);
      expect(await find(stopped, next)).toMatchObject({ state: 'stopped' });
      await next.remove(running);
      expect(await next.list()).toHaveLength(1);
    });

    it('the next driver finds a stopped machine, as it was', async () => {
      const [id, spec] = [randomUUID(), machineSpec({ disk_gb: 2 })];
      const before = await made(id, spec);
      const next = await stage.revive();
      await next.start();
      expect(await next.list()).toEqual([before.seen]);
      await next.remove(id);
      expect(await next.list()).toEqual([]);
    });

    it('grows a disk at once and never makes it smaller; what is stopped has the size that it will start with', async () => {
      const id = randomUUID();
      const sizeOf = async (more: Partial<MachineSpec>) => (await made(id, machineSpec(more))).seen.facts;
      expect(await sizeOf({})).toMatchObject({ vcpu: 1, memory_mb: 128, disk_gb: 1 });
      expect(await sizeOf({ disk_gb: 3, memory_mb: 256 })).toMatchObject({ memory_mb: 256, disk_gb: 3 });
      expect(await sizeOf({ disk_gb: 2, vcpu: 2 })).toMatchObject({ vcpu: 2, memory_mb: 128, disk_gb: 3 });
    });

    it('makes a disk of a backup: once for a number, for a new machine too', async () => {
      const [id, fresh] = [randomUUID(), randomUUID()];
      await made(id);
      const { blob, blobs } = blobOf(emptyQcow2(randomUUID()));
      const io = { signal: never, creating: () => undefined, blobs };
      const ensure = (which: string, number: number) =>
        stage.driver.ensure(which, machineSpec({ restore: { number, blob } }), io);
      expect((await ensure(id, 2)).facts).toMatchObject({ restored: 2, disk_gb: 1 });
      expect((await ensure(id, 1)).facts.restored).toBe(2);
      expect(await ensure(fresh, 1)).toMatchObject({ state: 'stopped', facts: { restored: 1 } });
      expect((await made(id)).seen.facts.restored).toBe(2);
    });

    it('backs up a stopped machine; one that is not there has no backup, and one broken off leaves no file', async () => {
      const [id, dir] = [randomUUID(), await mkdtemp(join(tmpdir(), 'nebo-backup-'))];
      await made(id);
      const path = join(dir, 'one');
      expect(await stage.driver.backup(id, path, never)).toBe('stopped');
      expect((await readFile(path)).subarray(0, 4).toString('latin1')).toBe('QFI\xfb');
      await expect(stage.driver.backup(randomUUID(), join(dir, 'two'), never)).rejects.toThrow(
        'there is no such machine',
      );
      await expect(stage.driver.backup(id, join(dir, 'three'), AbortSignal.abort())).rejects.toThrow();
      await expect(readFile(join(dir, 'two'))).rejects.toThrow();
      await expect(readFile(join(dir, 'three'))).rejects.toThrow();
      await rm(dir, { recursive: true });
    });

    it('knows what it can hold', async () => {
      const capacity = await stage.driver.capacity();
      if (capacity !== null) for (const value of Object.values(capacity)) expect(value).toBeGreaterThan(0);
    });
  });
}
