import { randomUUID } from 'node:crypto';
import { type MachineSpec } from '@nebo/contracts';
import { type MachineDriver } from '../src/drivers/machine-driver.js';

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
  image: { id: randomUUID(), filename: 'tiny-1.qcow2' },
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

/** What every machine driver owes, whatever it runs machines on. */
export function machineDriverSuite(name: string, make: () => Promise<MachineStage>): void {
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
      const seen = await stage.driver.ensure(id, spec, { signal: never, creating });
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

    it('starts, stops and restarts, each once for its number', async () => {
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
      await stage.driver.power(id, 'start', spec, 1, never);
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
      await expect(stage.driver.ensure(id, spec, { signal: stop.signal, creating })).rejects.toThrow();
      expect(await find(id)).toBeUndefined();
      await made(id, spec);
      const late = AbortSignal.abort();
      await expect(stage.driver.power(id, 'start', spec, 1, late)).rejects.toThrow();
      expect(await find(id)).toMatchObject({ state: 'stopped' });
    });

    it('the next driver finds what a killed one made, in the state it had', async () => {
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
  });
}
