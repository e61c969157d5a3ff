import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type MachineSpec } from '@nebo/contracts';
import { sleep } from '../../system/timing.js';
import {
  type EnsureIo,
  type MachineDriver,
  MachineFault,
  type MachineObservation,
  type PowerVerb,
} from '../machine-driver.js';

/** How long each act takes, milliseconds. */
export interface SimulatedTimings {
  create: number;
  start: number;
  stop: number;
  remove: number;
}

export interface SimulatedMachinesOptions {
  /** Folder of this driver alone: the machines outlive the agent in it. */
  dir: string;
  timings?: Partial<SimulatedTimings>;
  /** Failures on demand, for tests: why an act fails with a machine, or null. */
  failure?: (act: 'create' | PowerVerb, spec: MachineSpec) => string | null;
}

interface Machine {
  id: string;
  state: 'running' | 'stopped';
  boot: number;
  started_at: string | null;
}

const defaults: SimulatedTimings = { create: 50, start: 150, stop: 100, remove: 50 };

/**
 * States and timings of machines without a machine. A file for each holds its state, so that a killed agent finds again
 * what there was; no name, key or user data is kept.
 */
export class SimulatedMachineDriver implements MachineDriver {
  readonly name = 'simulated';
  readonly real = false;
  private readonly machines = new Map<string, Machine>();
  private readonly timings: SimulatedTimings;

  constructor(private readonly options: SimulatedMachinesOptions) {
    this.timings = { ...defaults, ...options.timings };
  }

  async start(): Promise<void> {
    await mkdir(this.options.dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.options.dir)) {
      const path = join(this.options.dir, name);
      try {
        const machine = JSON.parse(await readFile(path, 'utf8')) as Machine;
        if (path !== this.file(machine.id)) throw new Error('half a file');
        this.machines.set(machine.id, machine);
      } catch {
        // The process died while it wrote it: such a machine was never said to be there.
        await rm(path, { force: true });
      }
    }
  }

  async ensure(id: string, spec: MachineSpec, { signal, creating }: EnsureIo): Promise<MachineObservation> {
    const known = this.machines.get(id);
    if (known) return this.observed(known);
    creating();
    await this.act('create', spec, this.timings.create, signal);
    return this.keep({ id, state: 'stopped', boot: 0, started_at: null });
  }

  async power(
    id: string,
    verb: PowerVerb,
    spec: MachineSpec,
    boot: number,
    signal: AbortSignal,
  ): Promise<MachineObservation> {
    const machine = this.machines.get(id);
    if (!machine) throw new MachineFault('there is no such machine');
    const { start, stop } = this.timings;
    if (verb === 'stop') {
      if (machine.state === 'stopped') return this.observed(machine);
      await this.act(verb, spec, stop, signal);
      return this.keep({ ...machine, state: 'stopped', started_at: null });
    }
    if (machine.state === 'running' && machine.boot >= boot) return this.observed(machine);
    await this.act(verb, spec, machine.state === 'running' ? stop + start : start, signal);
    return this.keep({ ...machine, state: 'running', boot, started_at: new Date().toISOString() });
  }

  async remove(id: string): Promise<void> {
    if (this.machines.has(id)) await sleep(this.timings.remove);
    await rm(this.file(id), { force: true });
    this.machines.delete(id);
  }

  list(): Promise<MachineObservation[]> {
    return Promise.resolve([...this.machines.values()].map((machine) => this.observed(machine)));
  }

  async stop(): Promise<void> {}

  private async act(
    act: 'create' | PowerVerb,
    spec: MachineSpec,
    ms: number,
    signal: AbortSignal,
  ): Promise<void> {
    await sleep(ms, signal);
    const fault = this.options.failure?.(act, spec) ?? null;
    if (fault !== null) throw new MachineFault(fault);
  }

  /** On disk first: what was said must be found again. */
  private async keep(machine: Machine): Promise<MachineObservation> {
    const file = this.file(machine.id);
    await writeFile(`${file}.new`, JSON.stringify(machine), { mode: 0o600 });
    await rename(`${file}.new`, file);
    this.machines.set(machine.id, machine);
    return this.observed(machine);
  }

  private observed({ id, state, boot, started_at }: Machine): MachineObservation {
    const facts = { driver: this.name, real: this.real, boot, started_at, guest_agent: null };
    return { id, state, facts };
  }

  private file(id: string): string {
    // Ids come from the control plane; hashed, none can name another file.
    return join(this.options.dir, `${createHash('sha256').update(id).digest('hex').slice(0, 32)}.json`);
  }
}
