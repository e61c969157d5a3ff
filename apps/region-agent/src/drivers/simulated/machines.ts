import { randomUUID } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type BackupFacts, type MachineSpec, type RegionCapacity } from '@nebo/contracts';
import { sleep } from '../../system/timing.js';
import {
  type EnsureIo,
  type MachineDriver,
  MachineFault,
  type MachineObservation,
  type PowerVerb,
} from '../machine-driver.js';
import { RecordLog } from './record-log.js';

/** How long each act takes, milliseconds. */
export interface SimulatedTimings {
  create: number;
  restore: number;
  start: number;
  stop: number;
  backup: number;
  remove: number;
}

export type SimulatedAct = 'create' | 'grow' | 'restore' | 'backup' | PowerVerb;

export interface SimulatedMachinesOptions {
  /** Folder of this driver alone: the machines outlive the agent in it. */
  dir: string;
  timings?: Partial<SimulatedTimings>;
  /**
   * Failures on demand, for tests: why an act fails with a machine, or null. A backup is asked for by the machine's id
   * alone, so it has no spec.
   */
  failure?: (act: SimulatedAct, spec: MachineSpec | null, id: string) => string | null;
  /** What the host claims to hold; default null, as much as anybody likes. */
  capacity?: RegionCapacity | null;
}

interface Machine {
  id: string;
  state: 'running' | 'stopped';
  boot: number;
  started_at: string | null;
  restored: number;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

const defaults: SimulatedTimings = {
  create: 50,
  restore: 50,
  start: 150,
  stop: 100,
  backup: 100,
  remove: 50,
};

/**
 * States and timings of machines without a machine. A file holds their states, so that a killed agent finds again what
 * there was; no name, key or user data is kept.
 */
export class SimulatedMachineDriver implements MachineDriver {
  readonly name = 'simulated';
  readonly real = false;
  private readonly log: RecordLog<Machine>;
  private readonly timings: SimulatedTimings;

  constructor(private readonly options: SimulatedMachinesOptions) {
    this.timings = { ...defaults, ...options.timings };
    this.log = new RecordLog(join(options.dir, 'machines.log'));
  }

  start(): Promise<void> {
    return this.log.start();
  }

  async ensure(id: string, spec: MachineSpec, { signal, creating }: EnsureIo): Promise<MachineObservation> {
    const { create, restore } = this.timings;
    const { vcpu, memory_mb, disk_gb } = spec;
    const restored = spec.restore?.number ?? 0;
    let machine = this.log.records.get(id);
    if (!machine) {
      creating();
      await this.act('create', spec, id, create, signal);
      const size = { vcpu, memory_mb, disk_gb };
      return this.keep({ id, state: 'stopped', boot: 0, started_at: null, restored, ...size });
    }
    if (restored > machine.restored) {
      await this.act('restore', spec, id, restore, signal);
      machine = { ...machine, state: 'stopped', started_at: null, restored, disk_gb };
      await this.keep(machine);
    }
    if (disk_gb > machine.disk_gb) {
      await this.act('grow', spec, id, 0, signal);
      machine = { ...machine, disk_gb };
      await this.keep(machine);
    }
    // What is stopped has the size that it will start with.
    if (machine.state === 'stopped' && (machine.vcpu !== vcpu || machine.memory_mb !== memory_mb))
      return this.keep({ ...machine, vcpu, memory_mb });
    return this.observed(machine);
  }

  async power(
    id: string,
    verb: PowerVerb,
    spec: MachineSpec,
    boot: number,
    signal: AbortSignal,
  ): Promise<MachineObservation> {
    const machine = this.known(id);
    const { start, stop } = this.timings;
    if (verb === 'stop') {
      if (machine.state === 'stopped') return this.observed(machine);
      await this.act(verb, spec, id, stop, signal);
      return this.keep({ ...machine, state: 'stopped', started_at: null });
    }
    if (machine.state === 'running' && machine.boot >= boot) return this.observed(machine);
    await this.act(verb, spec, id, machine.state === 'running' ? stop + start : start, signal);
    // It may have been removed while this waited.
    this.known(id);
    const { vcpu, memory_mb } = spec;
    const started_at = new Date().toISOString();
    return this.keep({ ...machine, state: 'running', boot, started_at, vcpu, memory_mb });
  }

  async backup(id: string, path: string, signal: AbortSignal): Promise<BackupFacts['consistency']> {
    const { state } = this.known(id);
    await this.act('backup', null, id, this.timings.backup, signal);
    try {
      await writeFile(`${path}.new`, emptyQcow2(`simulated backup ${randomUUID()} of ${id}`), {
        mode: 0o600,
        signal,
      });
      await rename(`${path}.new`, path);
    } catch (error) {
      await rm(`${path}.new`, { force: true });
      throw error;
    }
    return state === 'running' ? 'crash' : 'stopped';
  }

  capacity(): Promise<RegionCapacity | null> {
    return Promise.resolve(this.options.capacity ?? null);
  }

  async remove(id: string): Promise<void> {
    if (this.log.records.has(id)) await sleep(this.timings.remove);
    await this.log.delete(id);
  }

  list(): Promise<MachineObservation[]> {
    return Promise.resolve([...this.log.records.values()].map((machine) => this.observed(machine)));
  }

  async stop(): Promise<void> {}

  private known(id: string): Machine {
    const machine = this.log.records.get(id);
    if (!machine) throw new MachineFault('there is no such machine');
    return machine;
  }

  private async act(
    act: SimulatedAct,
    spec: MachineSpec | null,
    id: string,
    ms: number,
    signal: AbortSignal,
  ): Promise<void> {
    await sleep(ms, signal);
    const fault = this.options.failure?.(act, spec, id) ?? null;
    if (fault !== null) throw new MachineFault(fault);
  }

  private async keep(machine: Machine): Promise<MachineObservation> {
    await this.log.set(machine);
    return this.observed(machine);
  }

  private observed({ id, state, ...facts }: Machine): MachineObservation {
    return { id, state, facts: { driver: this.name, real: this.real, guest_agent: null, ...facts } };
  }
}

/** A valid qcow2 file of an empty disk of 32 KiB, which tells what it is in a header extension that readers pass over. */
export function emptyQcow2(words: string): Buffer {
  const cluster = 512;
  const file = Buffer.alloc(4 * cluster);
  // Header, version 2: magic, version, cluster bits 9, size, one L1 entry, L1 table, refcount table of one cluster.
  file.write('QFI\xfb', 0, 'latin1');
  file.writeUInt32BE(2, 4);
  file.writeUInt32BE(9, 20);
  file.writeBigUInt64BE(32_768n, 24);
  file.writeUInt32BE(1, 36);
  file.writeBigUInt64BE(BigInt(3 * cluster), 40);
  file.writeBigUInt64BE(BigInt(cluster), 48);
  file.writeUInt32BE(1, 56);
  const text = Buffer.from(words).subarray(0, 256);
  file.writeUInt32BE(0x4e65626f, 72);
  file.writeUInt32BE(text.length, 76);
  text.copy(file, 80);
  // The refcount table names one block, the block counts the four clusters that there are.
  file.writeBigUInt64BE(BigInt(2 * cluster), cluster);
  for (let index = 0; index < 4; index += 1) file.writeUInt16BE(1, 2 * cluster + 2 * index);
  return file;
}
