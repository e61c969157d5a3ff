import { rename } from 'node:fs/promises';
import { type BackupFacts, type MachineSpec, type RegionCapacity, type RegionThing } from '@nebo/contracts';
import { type AgentLog } from '../../../agent-log.js';
import { settledWithin, sleep } from '../../../system/timing.js';
import {
  type EnsureIo,
  type MachineDriver,
  MachineFault,
  type MachineObservation,
  type PowerVerb,
} from '../../machine-driver.js';
import { type PortTaps } from '../../types.js';
import { type Cgroups } from '../cgroups.js';
import { chooseOnce } from './accelerator.js';
import { gib, hostCapacity, makeOverlay } from './disks.js';
import { backUpRunning, backUpStopped, clearBackup } from './disk-backup.js';
import { machineThings } from './host-things.js';
import { ImageStore } from './image-store.js';
import { isMachineId, type KeptMachine, MachineFolders } from './machine-folder.js';
import { type Accelerator, findQemus } from './qemu.js';
import { checkStandsOn } from './qcow2-header.js';
import { Qmp } from './qmp.js';
import { MachineRunner } from './runner.js';
import { runTool } from './run-tool.js';
import { NamedTurns } from './turns.js';

export interface LocalMachinesOptions {
  /** Folder of disks and images, of this driver alone. */
  dir: string;
  /** Six hex digits of the agent's home: names on the host carry them. */
  tag: string;
  /** The operator's folder of images. */
  images: string;
  taps: PortTaps | null;
  cgroups: Cgroups | null;
  log: AgentLog;
  /** How long a guest may take to shut down, milliseconds; default 30 s. */
  graceMs?: number;
  /** Default: by a probe that starts a small guest. */
  accelerator?: Accelerator;
  /** Folder of sockets; default `/run/nebo-machines`. */
  runRoot?: string;
}

/** A machine that ends by itself so often within `endsMs` has failed. */
const mostEnds = 3;
const endsMs = 10 * 60_000;
const runFolder = '/run/nebo-machines';

/**
 * Machines as QEMU processes that go on without the agent: a killed agent's successor finds them by the notes in their
 * folders, and by their names what was never noted.
 */
export class LocalMachineDriver implements MachineDriver {
  readonly name = 'local';
  readonly real = true;
  private readonly folders: MachineFolders;
  private readonly store: ImageStore;
  private readonly runner: MachineRunner;
  private readonly machines = new Map<string, KeptMachine>();
  private readonly turns = new NamedTurns();
  /** Running machines whose disk is being backed up. */
  private readonly backups = new Set<string>();
  private readonly prefix: string;
  /** User ids that this process gave away, also those of machines that are just being made. */
  private readonly given = new Set<number>();

  constructor(private readonly options: LocalMachinesOptions) {
    const { dir, tag, images, taps, cgroups, log, runRoot = runFolder } = options;
    this.prefix = `nebo-${tag}-`;
    this.folders = new MachineFolders(`${dir}/disks`, `${runRoot}/${tag}`);
    this.store = new ImageStore(`${dir}/images`, images);
    const accelerator = chooseOnce({ store: this.store, fixed: options.accelerator, runRoot, log });
    const parts = { prefix: this.prefix, folders: this.folders, store: this.store };
    this.runner = new MachineRunner({ ...parts, taps, cgroups, accelerator, log });
  }

  async start(): Promise<void> {
    await this.folders.start();
    await this.store.start();
    for (const id of await this.folders.ids()) {
      const kept = await this.folders.read(id);
      if (!kept) continue;
      this.machines.set(id, kept);
      const alive = this.runner.alive(kept);
      if (alive) await this.runner.adopt(kept);
      // In its turn, and without the others waiting: a guest may be slow to answer.
      void this.turns
        .take(id, () => clearBackup(this.folders.paths(id), alive))
        .catch((error: unknown) => {
          this.options.log.warn({ vm: id, error: String(error) }, 'an earlier backup was not cleared away');
        });
    }
    await this.collect();
  }

  ensure(id: string, spec: MachineSpec, io: EnsureIo): Promise<MachineObservation> {
    return this.turns.take(id, async () => {
      if (!isMachineId(id)) throw new MachineFault('the id is none');
      const known = this.machines.get(id);
      let kept = known ? await this.settled(known) : await this.make(id, spec, io);
      if (known) kept = await this.restored(kept, spec, io);
      if (spec.power === 'running' && kept.wanted === 'stopped' && this.runner.alive(kept))
        kept = await this.goingDown(kept, io.signal);
      // QEMU does not resize what it backs up; the next comparison tries again.
      if (spec.disk_gb > kept.disk_gb && !this.backups.has(id))
        kept = await this.grown(kept, spec.disk_gb, io.signal);
      if (this.runner.alive(kept)) await this.runner.look(kept);
      else if (kept.vcpu !== spec.vcpu || kept.memory_mb !== spec.memory_mb)
        kept = await this.keep({ ...kept, vcpu: spec.vcpu, memory_mb: spec.memory_mb });
      return this.observed(kept);
    });
  }

  power(
    id: string,
    verb: PowerVerb,
    spec: MachineSpec,
    boot: number,
    signal: AbortSignal,
  ): Promise<MachineObservation> {
    return this.turns.take(id, async () => {
      signal.throwIfAborted();
      let kept = await this.settled(this.known(id));
      const running = this.runner.alive(kept);
      if (verb === 'stop' || (running && kept.boot < boot)) {
        // Noted first: a machine that ends now has not ended by itself.
        kept = await this.keep({ ...kept, wanted: 'stopped' });
        await this.runner.halt(kept, this.options.graceMs ?? 30_000, signal);
        kept = await this.keep({ ...kept, process: null, started_at: null });
      }
      if (verb === 'stop' || this.runner.alive(kept)) return this.observed(kept);
      await this.checkEnds(kept);
      const ports = spec.interfaces.map(({ vpc_id, id: port }) => ({ vpc_id, id: port }));
      const { vcpu, memory_mb } = spec;
      kept = await this.keep({ ...kept, ports, vcpu, memory_mb });
      const process = await this.runner.launch(kept, spec, signal);
      const started_at = new Date().toISOString();
      return this.observed(await this.keep({ ...kept, wanted: 'running', boot, process, started_at }));
    });
  }

  backup(id: string, path: string, signal: AbortSignal): Promise<BackupFacts['consistency']> {
    const turn = <T>(work: () => Promise<T>) => this.turns.take(id, work);
    return this.turns.take(`backup of ${id}`, async () => {
      signal.throwIfAborted();
      const kept = await turn(() => this.settled(this.known(id)));
      const paths = this.folders.paths(id);
      if (!this.runner.alive(kept)) {
        const base = this.store.path(kept.image.sha256);
        return backUpStopped(paths, base, path, signal, turn);
      }
      this.backups.add(id);
      try {
        return await backUpRunning(kept, paths, path, this.options.log, signal, turn);
      } finally {
        this.backups.delete(id);
      }
    });
  }

  async capacity(): Promise<RegionCapacity> {
    await this.folders.start();
    const disks = [...this.machines.keys()].map((id) => this.folders.paths(id).disk);
    return hostCapacity(this.options.dir, disks);
  }

  remove(id: string): Promise<void> {
    if (!isMachineId(id)) return Promise.resolve();
    return this.turns.take(id, async () => {
      const kept = this.machines.get(id) ?? (await this.folders.read(id));
      await this.runner.end(id);
      for (const port of kept?.ports ?? []) await this.options.taps?.drop(port.vpc_id, port.id);
      await this.folders.remove(id);
      this.machines.delete(id);
      this.runner.forget(id);
      if (this.machines.size === 0) await this.options.cgroups?.removeBase();
      await this.collect();
    });
  }

  /** Also folders that are half made, and processes whose folder somebody took away. */
  async list(): Promise<MachineObservation[]> {
    const processes = await findQemus(this.prefix);
    const ids = new Set([...this.machines.keys(), ...(await this.folders.ids()), ...processes.keys()]);
    return [...ids].filter(isMachineId).map((id) => {
      const kept = this.machines.get(id);
      if (kept) return this.observed(kept);
      const facts = {
        boot: 0,
        started_at: null,
        guest_agent: null,
        restored: 0,
        vcpu: 0,
        memory_mb: 0,
        disk_gb: 0,
      };
      const state = processes.has(id) ? ('running' as const) : ('stopped' as const);
      return { id, state, facts: { driver: this.name, real: this.real, ...facts } };
    });
  }

  /** Machines go on; one that is just being started or stopped comes to an end of that, at most 5 s. */
  async stop(): Promise<void> {
    const busy = [...this.machines.keys()].map((id) => this.turns.take(id, () => Promise.resolve()));
    await settledWithin(Promise.all(busy), 5_000);
    this.runner.close();
  }

  onHost(): Promise<RegionThing[]> {
    const { dir, tag, cgroups, runRoot = runFolder } = this.options;
    return machineThings({ prefix: this.prefix, disks: `${dir}/disks`, run: `${runRoot}/${tag}`, cgroups });
  }

  /** Ends all machines, asking them before; they are started again by whoever wants them. At most 4 s of grace. */
  async halt(): Promise<void> {
    const graceMs = Math.min(this.options.graceMs ?? 4_000, 4_000);
    const end = (id: string) =>
      this.turns.take(id, async () => {
        const known = this.machines.get(id);
        if (!known || !this.runner.alive(known)) return;
        const kept = await this.keep({ ...known, wanted: 'stopped' });
        await this.runner.halt(kept, graceMs, new AbortController().signal);
        await this.keep({ ...kept, process: null, started_at: null });
      });
    await Promise.allSettled([...this.machines.keys()].map(end));
  }

  /** Disk and note of a machine that is not there, or only half. */
  private async make(id: string, spec: MachineSpec, io: EnsureIo): Promise<KeptMachine> {
    io.creating();
    const { image, restore, vcpu, memory_mb, disk_gb } = spec;
    await this.runner.end(id);
    await this.folders.remove(id);
    try {
      const stored = await this.store.image({ ...spec, image }, io.blobs, io.signal);
      const base = restore ? await this.store.blob(restore.blob, io.blobs, io.signal) : stored.sha256;
      await this.folders.make(id);
      await makeOverlay(this.store, this.folders.paths(id).disk, base, disk_gb, io.signal);
      io.signal.throwIfAborted();
      return await this.keep({
        ...{ id, uid: this.freeUid(), image: { sha256: base, boot: stored.boot } },
        ...{ restored: restore?.number ?? 0, vcpu, memory_mb, disk_gb, wanted: 'stopped', boot: 0 },
        ...{ started_at: null, process: null, ports: [], ends: [] },
      });
    } catch (error) {
      await this.folders.remove(id);
      throw error;
    }
  }

  /** Makes the disk anew of a backup's bytes, when a later restore is wanted than the one that it was made by. */
  private async restored(kept: KeptMachine, spec: MachineSpec, io: EnsureIo): Promise<KeptMachine> {
    const { restore, disk_gb } = spec;
    if (!restore || restore.number <= kept.restored) return kept;
    const { disk } = this.folders.paths(kept.id);
    const sha256 = await this.store.blob(restore.blob, io.blobs, io.signal);
    await makeOverlay(this.store, `${disk}.new`, sha256, Math.max(disk_gb, kept.disk_gb), io.signal);
    io.signal.throwIfAborted();
    // What it has in memory is of the disk that goes.
    const still = await this.keep({ ...kept, wanted: 'stopped' });
    await this.runner.end(kept.id);
    await rename(`${disk}.new`, disk);
    const image = { ...kept.image, sha256 };
    const made = { restored: restore.number, disk_gb: Math.max(disk_gb, kept.disk_gb) };
    return this.keep({ ...still, image, ...made, process: null, started_at: null });
  }

  private async grown(kept: KeptMachine, disk_gb: number, signal: AbortSignal): Promise<KeptMachine> {
    const { disk, monitor } = this.folders.paths(kept.id);
    if (this.runner.alive(kept))
      await Qmp.with(monitor, (qmp) =>
        qmp.execute('block_resize', { 'node-name': 'disk', size: disk_gb * gib }),
      );
    else {
      await checkStandsOn(disk, this.store.path(kept.image.sha256));
      await runTool(['qemu-img', 'resize', '-q', '-f', 'qcow2', disk, `${disk_gb}G`], signal, 60_000);
    }
    return this.keep({ ...kept, disk_gb });
  }

  /**
   * A stop that was taken back, or broken off with its agent, has told the guest to shut down: until that is done the machine
   * only seems to run. One that does not heed it runs on.
   */
  private async goingDown(kept: KeptMachine, signal: AbortSignal): Promise<KeptMachine> {
    const until = Date.now() + (this.options.graceMs ?? 30_000);
    while (this.runner.alive(kept) && Date.now() < until) await sleep(100, signal);
    return this.runner.alive(kept) ? this.keep({ ...kept, wanted: 'running' }) : this.settled(kept);
  }

  /** Notices a machine that ended by itself: its guest shut down, or QEMU died. */
  private async settled(kept: KeptMachine): Promise<KeptMachine> {
    if (kept.process === null || this.runner.alive(kept)) return kept;
    const self = kept.wanted === 'running';
    if (self)
      this.options.log.warn({ vm: kept.id }, `machine ended by itself: ${this.runner.lastWords(kept.id)}`);
    await this.runner.end(kept.id);
    const ends = self ? [...kept.ends, Date.now()].slice(-mostEnds) : kept.ends;
    return this.keep({ ...kept, process: null, started_at: null, wanted: 'stopped', ends });
  }

  /** @throws MachineFault for one that has ended by itself too often; the next try is a new one */
  private async checkEnds(kept: KeptMachine): Promise<void> {
    const late = kept.ends.filter((at) => at > Date.now() - endsMs);
    if (late.length < mostEnds) return;
    await this.keep({ ...kept, ends: [] });
    const last = this.runner.lastWords(kept.id);
    const words = last === '' ? 'it said nothing' : `its last words: ${last}`;
    throw new MachineFault(`it ended by itself ${late.length} times within ten minutes; ${words}`);
  }

  private known(id: string): KeptMachine {
    const kept = this.machines.get(id);
    if (!kept) throw new MachineFault('there is no such machine');
    return kept;
  }

  private async keep(kept: KeptMachine): Promise<KeptMachine> {
    await this.folders.write(kept);
    this.machines.set(kept.id, kept);
    return kept;
  }

  /** Several agents of one host begin at different places, by their tags. */
  private freeUid(): number {
    const taken = new Set([...this.machines.values()].map(({ uid }) => uid));
    let uid = 500_000 + (Number.parseInt(this.options.tag, 16) % 1_000) * 1_000;
    while (taken.has(uid) || this.given.has(uid)) uid += 1;
    this.given.add(uid);
    return uid;
  }

  private async collect(): Promise<void> {
    const used = [...this.machines.values()].flatMap(({ image }) => [
      image.sha256,
      ...(image.boot ? [image.boot.kernel, image.boot.initrd] : []),
    ]);
    await this.store.collect(new Set(used));
  }

  private observed(kept: KeptMachine): MachineObservation {
    const { id, boot, started_at, restored, vcpu, memory_mb, disk_gb } = kept;
    const running = this.runner.alive(kept);
    const facts = { boot, restored, vcpu, memory_mb, disk_gb };
    return {
      id,
      state: running ? 'running' : 'stopped',
      facts: {
        ...{ driver: this.name, real: this.real, ...facts },
        ...{ started_at: running ? started_at : null, guest_agent: running ? this.runner.guest(id) : null },
      },
    };
  }
}
