import { mkdir, rm, writeFile } from 'node:fs/promises';
import { type MachineFacts, type MachineSpec } from '@nebo/contracts';
import { type AgentLog } from '../../../agent-log.js';
import { isSame } from '../../../system/processes.js';
import { sleep } from '../../../system/timing.js';
import { MachineFault } from '../../machine-driver.js';
import { type PortTaps } from '../../types.js';
import { type Cgroups } from '../cgroups.js';
import { GuestAgent } from './guest-agent.js';
import { type ImageStore } from './image-store.js';
import { type KeptMachine, type MachineFolders } from './machine-folder.js';
import { openDoors } from './doors.js';
import { checkStandsOn } from './qcow2-header.js';
import { Qmp } from './qmp.js';
import {
  type Accelerator,
  findQemus,
  killed,
  qemuVersion,
  type QemuVersion,
  startQemu,
  words,
} from './qemu.js';
import { seedImage } from './seed.js';
import { SerialLog } from './serial-log.js';

export interface RunnerParts {
  /** Before the machine's id, in the name of its process. */
  prefix: string;
  folders: MachineFolders;
  store: ImageStore;
  taps: PortTaps | null;
  cgroups: Cgroups | null;
  accelerator: () => Promise<Accelerator>;
  log: AgentLog;
}

/** Beside the guest's memory: QEMU itself, translated code, threads. */
const overheadBytes = 384 * 1024 * 1024;
/** How long QEMU may take until its monitor answers, on a host that has other things to do. */
const monitorMs = 30_000;

/** Starts and ends the processes of machines. Who calls it takes care that one machine has one caller at a time. */
export class MachineRunner {
  private readonly serials = new Map<string, SerialLog>();
  private readonly guests = new Map<string, NonNullable<MachineFacts['guest_agent']>>();

  private version: Promise<QemuVersion> | null = null;

  constructor(private readonly parts: RunnerParts) {}

  alive({ process }: KeptMachine): boolean {
    return process !== null && isSame(process.pid, process.start);
  }

  guest(id: string): MachineFacts['guest_agent'] {
    return this.guests.get(id) ?? 'absent';
  }

  /** The machine runs already: its serial line is taken down again. */
  async adopt(kept: KeptMachine): Promise<void> {
    await this.serial(kept.id).attach(this.parts.folders.paths(kept.id).console);
  }

  /** Asks whether the guest agent is there, and has a machine go on that was paused for a full disk of the host. */
  async look({ id }: KeptMachine): Promise<void> {
    const { agent, monitor } = this.parts.folders.paths(id);
    this.guests.set(id, (await GuestAgent.with(agent, async () => 'connected' as const)) ?? 'absent');
    await Qmp.with(monitor, async (qmp) => {
      const { status } = (await qmp.execute('query-status')) as { status: string };
      if (status === 'io-error' || status === 'paused') await qmp.execute('cont');
    }).catch((error: unknown) => {
      this.parts.log.warn({ vm: id, error: String(error) }, 'the machine’s monitor does not answer');
    });
  }

  /**
   * Starts the machine's process. @returns it, once the guest runs
   * @throws MachineFault, the signal's reason, or Error; no process is left then
   */
  async launch(
    kept: KeptMachine,
    spec: MachineSpec,
    signal: AbortSignal,
  ): Promise<{ pid: number; start: string }> {
    const { prefix, folders, store, taps, log } = this.parts;
    const paths = folders.paths(kept.id);
    // What nobody wrote down, because the agent was killed between start and note.
    await this.killAll(kept.id);
    const accelerator = await this.parts.accelerator();
    const version = await (this.version ??= qemuVersion());
    await checkStandsOn(paths.disk, store.path(kept.image.sha256));
    const seed = fitting(() => seedImage(kept.id, spec));
    await mkdir(paths.run, { recursive: true, mode: 0o700 });
    await writeFile(paths.seed, seed, { mode: 0o600 });
    const doors = await openDoors(taps, spec.interfaces, signal);
    const group = await this.limits(kept);
    signal.throwIfAborted();
    const name = `${prefix}${kept.id}`;
    const { namespace, devices } = doors;
    const file = (sha256: string) => store.path(sha256);
    try {
      await doors.gather();
      const process = await startQemu({
        ...{ name, kept, spec, paths, accelerator, version, file, namespace },
        ...{ taps: devices, groups: group },
      });
      await this.answers(process, paths.monitor, paths.log, signal);
      await doors.scatter();
      await this.serial(kept.id).attach(paths.console);
      signal.throwIfAborted();
      await Qmp.with(paths.monitor, (qmp) => qmp.execute('cont'));
      this.guests.set(kept.id, 'absent');
      log.info({ vm: kept.id, pid: process.pid, accelerator }, 'machine started');
      return process;
    } catch (error) {
      await this.end(kept.id);
      await doors.scatter().catch(() => undefined);
      throw error;
    }
  }

  /**
   * Asks the guest to shut down, ends QEMU when it does not within `graceMs`.
   * @throws the signal's reason; the machine may go down all the same then
   */
  async halt(kept: KeptMachine, graceMs: number, signal: AbortSignal): Promise<void> {
    const { agent, monitor } = this.parts.folders.paths(kept.id);
    if (this.alive(kept)) {
      const told = await GuestAgent.with(agent, async (guest) => {
        guest.tell('guest-shutdown', { mode: 'powerdown' });
        return true;
      });
      // The power button is for guests without an agent; one that has heard both might take the second for a haste.
      if (!told) await Qmp.with(monitor, (qmp) => qmp.execute('system_powerdown')).catch(() => undefined);
      for (const until = Date.now() + graceMs; this.alive(kept) && Date.now() < until;)
        await sleep(50, signal);
    }
    if (this.alive(kept)) {
      // QEMU writes out what it holds of the disk.
      await Qmp.with(monitor, (qmp) => qmp.execute('quit')).catch(() => undefined);
      for (const until = Date.now() + 5_000; this.alive(kept) && Date.now() < until;) await sleep(50);
    }
    await this.end(kept.id);
  }

  /** Ends every process of the machine at once and takes away what goes with it. */
  async end(id: string): Promise<void> {
    await this.killAll(id);
    this.serials.get(id)?.close();
    this.guests.delete(id);
    await this.parts.cgroups?.drop(id);
    await rm(this.parts.folders.paths(id).run, { recursive: true, force: true });
  }

  /** The machine is no more. */
  forget(id: string): void {
    this.serials.get(id)?.close();
    this.serials.delete(id);
  }

  lastWords(id: string): string {
    return this.serial(id).last(5).join(' | ').slice(-400);
  }

  /** The agent ends, machines go on. */
  close(): void {
    for (const serial of this.serials.values()) serial.close();
  }

  private serial(id: string): SerialLog {
    const serial = this.serials.get(id) ?? new SerialLog(this.parts.folders.paths(id).serial);
    this.serials.set(id, serial);
    return serial;
  }

  private async killAll(id: string): Promise<void> {
    const found = await findQemus(this.parts.prefix);
    for (const pid of found.get(id) ?? []) await killed(pid);
  }

  /** Waits until QEMU has opened everything and answers. @throws Error with its words when it ends */
  private async answers(
    process: { pid: number; start: string },
    monitor: string,
    log: string,
    signal: AbortSignal,
  ): Promise<void> {
    for (const until = Date.now() + monitorMs; ; await sleep(30, signal)) {
      const there = await Qmp.with(monitor, () => Promise.resolve(true)).catch(() => false);
      if (there) return;
      if (!isSame(process.pid, process.start)) throw new Error(`QEMU ended at once: ${await words(log)}`);
      if (Date.now() > until) throw new Error(`QEMU does not answer: ${await words(log)}`);
    }
  }

  /** Files that a process writes its pid into to be limited; none where groups cannot be written. */
  private async limits({ id, memory_mb, vcpu }: KeptMachine): Promise<string[]> {
    const { cgroups, log } = this.parts;
    if (!cgroups) return [];
    const memoryBytes = memory_mb * 1024 * 1024 + overheadBytes;
    try {
      return (await cgroups.create(id, { memoryBytes, cpus: vcpu, processes: 512 })).procsFiles;
    } catch (error) {
      log.warn({ vm: id, error: String(error) }, 'the machine runs without limits of memory and processor');
      return [];
    }
  }
}

/** @throws MachineFault in place of an Error about what the user gave */
function fitting<T>(make: () => T): T {
  try {
    return make();
  } catch {
    throw new MachineFault('its user data and keys are larger than a machine can take');
  }
}
