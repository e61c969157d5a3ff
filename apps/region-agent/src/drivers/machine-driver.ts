import {
  type BackupFacts,
  type MachineFacts,
  type MachineSpec,
  type RegionCapacity,
  type RegionThing,
} from '@nebo/contracts';
import { type BlobAccess, type DriverName } from './types.js';

/** What a machine driver says of one machine. `boot` in the facts is that under which it was started last, 0 for never. */
export interface MachineObservation {
  id: string;
  state: 'running' | 'stopped';
  facts: MachineFacts;
}

export type PowerVerb = 'start' | 'stop' | 'restart';

export interface EnsureIo {
  /** Fires when something else is wanted of the machine, or the agent stops: end soon, leave nothing half made. */
  signal: AbortSignal;
  /** Called when there is nothing of the machine yet and it is being made. */
  creating(): void;
  /** Where the bytes of registered images and of backups come from. */
  blobs: BlobAccess;
}

/** What cannot be done and will not be done by trying again: the message is a sentence for the machine's owner. */
export class MachineFault extends Error {
  override name = 'MachineFault';
}

/**
 * Makes machines. All calls are idempotent and may come again at any time, also after the process died in the middle of
 * one. What a driver has made goes on without the agent: the region itself is the only memory of it.
 */
export interface MachineDriver {
  readonly name: DriverName;
  /** False: states and timings only. Shown wherever such a machine is. */
  readonly real: boolean;
  /** Finds what an earlier agent made. */
  start(): Promise<void>;
  /**
   * Makes the machine with its disk and interfaces, stopped. Of one that is there: a larger disk is grown at once, a higher
   * `restore.number` makes its disk anew (the machine is stopped for it, and started again by `power`), another number of
   * processors or amount of memory counts from its next start; nothing else is touched.
   * @throws MachineFault, or whatever the host's tools throw; nothing half made is left then
   */
  ensure(id: string, spec: MachineSpec, io: EnsureIo): Promise<MachineObservation>;
  /**
   * @param boot kept with a start or restart, and shown in the facts from then on
   * @throws MachineFault, also for a machine that is not there
   */
  power(
    id: string,
    verb: PowerVerb,
    spec: MachineSpec,
    boot: number,
    signal: AbortSignal,
  ): Promise<MachineObservation>;
  /**
   * The machine's disk as it is at one moment, as a compressed qcow2 file at `path`. The machine goes on, frozen for a moment
   * when its guest agent is connected.
   * @throws MachineFault, also for a machine that is not there; nothing is left at `path` then
   */
  backup(id: string, path: string, signal: AbortSignal): Promise<BackupFacts['consistency']>;
  /** What this host can hold in all; null when nobody knows. */
  capacity(): Promise<RegionCapacity | null>;
  /** Settled when nothing of it is left. */
  remove(id: string): Promise<void>;
  /** All that there is, also what an earlier agent made. */
  list(): Promise<MachineObservation[]>;
  /**
   * What lies on the host of machines, looked at itself and not by memory, for the audit; absent where there is nothing but
   * memory.
   */
  onHost?(): Promise<RegionThing[]>;
  /** Ends all machines at once and keeps their disks; for an agent that is asked to take everything with it. */
  halt?(): Promise<void>;
  /** The agent ends; machines go on. */
  stop(): Promise<void>;
}
