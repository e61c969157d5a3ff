import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentKind, type RegionCapacity, type Wanted } from '@nebo/contracts';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { type AgentLog } from './agent-log.js';
import { CacheSweeper } from './builds/cache/sweeper.js';
import { type ControlPlane, type ServicePlane, Superseded } from './control/control-plane.js';
import { createDrivers, type AgentDrivers } from './drivers/create.js';
import { type DriverChoice } from './drivers/probe.js';
import { RecordLog } from './drivers/simulated/record-log.js';
import { type BlobAccess, type Egress } from './drivers/types.js';
import { InventoryTeller } from './inventory/inventory-teller.js';
import { lookAround } from './inventory/look.js';
import { LogShipper } from './log/log-shipper.js';
import { BackupWorker } from './reconcile/backup-worker.js';
import { BuildWorker } from './reconcile/build-worker.js';
import { Follower } from './reconcile/follower.js';
import { MachineWorker } from './reconcile/machine-worker.js';
import { Outcomes } from './reconcile/outcomes.js';
import { ReplicaWorker } from './reconcile/replica-worker.js';
import { Reporter } from './reconcile/reporter.js';
import { type RunRecord, RunWorker } from './reconcile/run-worker.js';
import { VpcWorker } from './reconcile/vpc-worker.js';
import { WorkerSet } from './reconcile/worker-set.js';
import { type Worker } from './reconcile/worker.js';
import { Runs } from './system/runs.js';
import { Backoff, ignoreAbort, Places, sleep } from './system/timing.js';
import { ReplicaDesk } from './wake/desk.js';
import { WakeDoor, type WakeDoorOptions } from './wake/door.js';

export interface RegionAgentOptions {
  controlPlane: ControlPlane;
  /** Folder of this agent alone. */
  home: string;
  log: AgentLog;
  /** Default: chosen by probe and `NEBO_DRIVERS`. */
  drivers?: AgentDrivers;
  /** The guarded proxy for builds and replicas; null: they have no way out. Default: one that the agent runs itself. */
  egress?: Egress | null;
  /**
   * Whether an orderly stop ends machines and takes networks away too, as a process must that is a whole installation. Default
   * false: both go on without the agent, and the next one adopts what is wanted and removes the rest. An agent whose region
   * another one has taken never touches them: they are the other one's now.
   */
  endsAll?: boolean;
  /**
   * How edges wake replicas: a door for other processes, or `here` for an edge of this process (`agent.desk`). Absent:
   * nobody can, and on-demand replicas run always.
   */
  wake?: WakeDoorOptions | 'here' | null;
  settings?: Partial<AgentSettings>;
}

export interface AgentSettings {
  /** Builds at a time. */
  builds: number;
  /** Job runs at a time. */
  jobRuns: number;
  /** Backups at a time. */
  backups: number;
  /** Seconds that a question for news may wait. */
  waitSeconds: number;
  /** Milliseconds between full comparisons. */
  fullMs: number;
}

const defaults: AgentSettings = { builds: 2, jobRuns: 8, backups: 2, waitSeconds: 30, fullMs: 60_000 };

/** What an operator may set. @throws when it is no number of places */
function settingsOf({ NEBO_JOB_RUNS: runs }: NodeJS.ProcessEnv): Partial<AgentSettings> {
  if (!runs) return {};
  if (!/^[1-9]\d{0,2}$/.test(runs)) throw new Error('NEBO_JOB_RUNS must be a number from 1 to 999');
  return { jobRuns: Number(runs) };
}

/** What the agent is doing, for health checks. */
export interface AgentStatus {
  state: 'starting' | 'connecting' | 'connected' | 'superseded' | 'stopped';
  region_id: string | null;
  epoch: number | null;
  drivers: Record<string, DriverChoice>;
}

/** Makes an agent; nothing happens before `start`. */
export function createRegionAgent(options: RegionAgentOptions): RegionAgent {
  return new RegionAgent(options);
}

/**
 * The region's agent: fetches what is wanted, makes it so, reports what it sees. Level-triggered: what is wanted is
 * compared as a whole at start and every minute, news in between are only quicker.
 */
export class RegionAgent {
  private readonly settings: AgentSettings;
  private readonly stopping = new AbortController();
  /** Of builds and replicas, and of networks: what one service does not list, the other may want. */
  private readonly workers: WorkerSet;
  private readonly networkWorkers: WorkerSet;
  private readonly machineWorkers: WorkerSet;
  private readonly shipper: LogShipper;
  private readonly reporter: Reporter;
  private readonly networkReporter: Reporter;
  private readonly machineReporter: Reporter;
  /** Services that do not answer at the moment. */
  private readonly silent = new Set<string>();
  private readonly outcomes: Outcomes;
  private readonly runRecords: RecordLog<RunRecord>;
  private readonly runPlaces: Places;
  private readonly blobs: BlobAccess;
  private readonly machineBlobs: BlobAccess;
  /** Where an edge of this process asks for replicas. */
  readonly desk: ReplicaDesk;
  private readonly door: WakeDoor | null;
  private drivers: AgentDrivers | null;
  private proxy: EgressProxy | null = null;
  private places: Places;
  private readonly backupPlaces: Places;
  private loop: Promise<void> = Promise.resolve();
  private stopped: Promise<void> | null = null;
  private current: AgentStatus = { state: 'starting', region_id: null, epoch: null, drivers: {} };

  constructor(private readonly options: RegionAgentOptions) {
    const { controlPlane, home, log } = options;
    this.settings = { ...defaults, ...settingsOf(process.env), ...options.settings };
    this.drivers = options.drivers ?? null;
    this.desk = new ReplicaDesk((id) => this.drivers?.replicas.onDemand(id) ?? null);
    const { wake = null } = options;
    this.door = wake === null || wake === 'here' ? null : new WakeDoor(this.desk, wake);
    this.places = new Places(this.settings.builds);
    this.backupPlaces = new Places(this.settings.backups);
    this.outcomes = new Outcomes(join(home, 'outcomes'));
    this.runPlaces = new Places(this.settings.jobRuns);
    this.runRecords = new RecordLog(join(home, 'job-runs'));
    const send = this.guarded.bind(this);
    this.shipper = new LogShipper({
      dir: join(home, 'log-seq'),
      log,
      send: (stream, batch, signal) => send(controlPlane.log(stream, batch, signal)),
    });
    const reporterOf = ({ observed }: Pick<ControlPlane, 'observed'>) =>
      new Reporter(observed, log, () => this.supersede());
    this.reporter = reporterOf({ observed: (items, signal) => controlPlane.observed(items, signal) });
    this.networkReporter = reporterOf(controlPlane.of('networking'));
    this.machineReporter = reporterOf(controlPlane.of('compute'));
    this.workers = new WorkerSet((kind, id) => this.makeWorker(kind, id), log);
    this.networkWorkers = new WorkerSet((kind, id) => this.makeNetworkWorker(kind, id), log);
    this.machineWorkers = new WorkerSet((kind, id) => this.makeMachineWorker(kind, id), log);
    const blobsOf = (plane: Pick<ServicePlane, 'getBlob' | 'putBlob'>): BlobAccess => ({
      get: (sha256, signal) => send(plane.getBlob(sha256, signal)),
      put: (blob, source, signal) => send(plane.putBlob(blob.sha256, blob.bytes, source, signal)),
    });
    this.blobs = blobsOf(controlPlane);
    this.machineBlobs = blobsOf(controlPlane.of('compute'));
  }

  status(): AgentStatus {
    return this.current;
  }

  /**
   * Ends what an earlier agent of this home left, chooses drivers, and begins to follow the control plane, which need
   * not be there yet.
   * @throws when `NEBO_DRIVERS` asks for a driver whose parts are missing
   */
  async start(): Promise<void> {
    const { home, log, egress } = this.options;
    await mkdir(home, { recursive: true, mode: 0o700 });
    const runs = new Runs(home, log);
    await runs.cleanUp();
    if (!this.drivers) {
      const way = egress === undefined ? await this.ownProxy() : egress;
      this.drivers = await createDrivers({ home, log, runs, egress: way });
    }
    for (const [area, choice] of Object.entries(this.drivers.choices)) {
      const { driver, isolated, simulated } = choice;
      const fields = { area, driver, isolated, simulated };
      // What is not real has nothing to isolate.
      if (isolated || simulated) log.info(fields, `${area}: ${choice.driver}, ${choice.why}`);
      else log.warn(fields, `${area}: ${choice.driver}, NOT ISOLATED: ${choice.why}`);
    }
    await rm(this.backupDir(), { recursive: true, force: true });
    await Promise.all([
      this.drivers.builds.start(),
      this.drivers.replicas.start(),
      this.drivers.networks.start(),
      this.drivers.machines.start(),
      this.shipper.start(),
      this.outcomes.start(),
      this.runRecords.start(),
    ]);
    await this.door?.start();
    await this.drivers.engines?.start();
    this.current = { ...this.current, state: 'connecting', drivers: { ...this.drivers.choices } };
    this.loop = this.follow().catch((error: unknown) => {
      log.error({ error: String((error as Error)?.stack ?? error) }, 'the agent ended by an error');
    });
  }

  /** Ends all work, child processes included, and reports the last news; at most 10 s. */
  stop(): Promise<void> {
    this.stopped ??= this.end('stopped', 1_500);
    return this.stopped;
  }

  /** Builds and replicas reach the internet through this and nothing else (reliability.md section 10). */
  private async ownProxy(): Promise<Egress | null> {
    const allow = parseAllowList(process.env['NEBO_SAFE_NET_ALLOW'] ?? '');
    const { log } = this.options;
    this.proxy = await startEgressProxy({ allow, log: (entry) => log.debug({ egress: entry }, 'egress') });
    return this.proxy.url === null ? null : { proxyUrl: this.proxy.url };
  }

  private supersede(): void {
    if (this.stopped) return;
    this.options.log.error(
      { epoch: this.current.epoch },
      'another agent has taken the region: this one stops acting',
    );
    this.stopped = this.end('superseded', 0);
  }

  private async end(state: 'stopped' | 'superseded', graceMs: number): Promise<void> {
    this.current = { ...this.current, state };
    this.stopping.abort();
    this.desk.close();
    await this.door?.stop();
    await this.loop;
    await Promise.all([this.workers.stop(), this.networkWorkers.stop(), this.machineWorkers.stop()]);
    this.drivers?.engines?.stop();
    await this.drivers?.replicas.stop();
    await this.drivers?.meter.stop(graceMs);
    if (state === 'stopped' && this.options.endsAll) {
      await this.drivers?.machines.halt?.();
      await this.drivers?.networks.clear();
    }
    await this.drivers?.machines.stop();
    await this.drivers?.networks.stop();
    await this.proxy?.stop();
    const reporters = [this.reporter, this.networkReporter, this.machineReporter];
    await Promise.all([this.shipper.stop(graceMs), ...reporters.map((reporter) => reporter.stop(graceMs))]);
    await this.options.controlPlane.close();
  }

  /** Passes a call on and notices when the region belongs to another agent. */
  private async guarded<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (error instanceof Superseded) this.supersede();
      throw error;
    }
  }

  private async follow(): Promise<void> {
    const { signal } = this.stopping;
    if (!(await this.takeRegion(signal))) return;
    const { controlPlane } = this.options;
    this.drivers!.meter.follow(
      (report, at) => this.guarded(controlPlane.usage(report, at)),
      () => this.supersede(),
    );
    await Promise.all([
      this.follower('apps-builder', controlPlane, this.reporter, (items, full) =>
        this.apply(items, full),
      ).run(signal),
      this.follower('networking', controlPlane.of('networking'), this.networkReporter, (items, full) =>
        this.applyNetworks(items, full),
      ).run(signal),
      this.follower('compute', controlPlane.of('compute'), this.machineReporter, (items, full) =>
        this.applyMachines(items, full),
      ).run(signal),
      new CacheSweeper({
        ...{ caches: this.drivers!.builds.caches, plane: controlPlane, log: this.options.log },
        ...{ everyMs: 5 * this.settings.fullMs, onSuperseded: () => this.supersede() },
      }).run(signal),
      new InventoryTeller({
        plane: controlPlane,
        log: this.options.log,
        waitSeconds: this.settings.waitSeconds,
        look: () => lookAround(this.drivers!),
        onSuperseded: () => this.supersede(),
      }).run(signal),
    ]);
  }

  /** @returns false when the agent ends before the control plane has answered */
  private async takeRegion(signal: AbortSignal): Promise<boolean> {
    const { controlPlane, log } = this.options;
    const backoff = new Backoff(200, 5_000);
    for (let quiet = false; !signal.aborted; quiet = true) {
      try {
        const { region_id, epoch } = await controlPlane.openSession(await this.capacity(), signal);
        this.current = { ...this.current, state: 'connected', region_id, epoch };
        log.info({ region: region_id, epoch }, 'took the region');
        return true;
      } catch (error) {
        if (signal.aborted) return false;
        if (error instanceof Superseded) {
          this.supersede();
          return false;
        }
        if (!quiet)
          log.warn({ error: String(error) }, 'the control plane does not answer; what runs goes on running');
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
    return false;
  }

  /** What the machines' driver can hold; a host that cannot say must not keep the agent from its work. */
  private capacity(): Promise<RegionCapacity | null> {
    return this.drivers!.machines.capacity().catch((error: unknown) => {
      this.options.log.warn({ error: String(error) }, 'nobody knows what this host can hold');
      return null;
    });
  }

  private backupDir(): string {
    return join(this.options.home, 'backups');
  }

  private follower(
    service: string,
    plane: ServicePlane,
    reporter: Reporter,
    apply: (items: readonly Wanted[], full: boolean) => Promise<void>,
  ): Follower {
    const { waitSeconds, fullMs } = this.settings;
    return new Follower({
      service,
      plane,
      log: this.options.log,
      waitSeconds,
      fullMs,
      apply,
      contact: (there) => {
        if (there) this.silent.delete(service);
        else this.silent.add(service);
        if (this.stopping.signal.aborted) return;
        this.current = { ...this.current, state: this.silent.size === 0 ? 'connected' : 'connecting' };
        // It may have lost what it was told.
        if (there) reporter.resend();
      },
      onSuperseded: () => this.supersede(),
    });
  }

  private async apply(items: readonly Wanted[], full: boolean): Promise<void> {
    const listed = this.workers.apply(items, full);
    if (!full) return;
    for (const id of this.outcomes.ids()) if (!listed.has(`build/${id}`)) await this.outcomes.drop(id);
    for (const id of this.runRecords.records.keys())
      if (!listed.has(`run/${id}`)) await this.runRecords.delete(id);
    for (const { id } of this.drivers!.replicas.list())
      if (!listed.has(`replica/${id}`)) await this.drivers!.replicas.remove(id);
  }

  /** After a full answer, networks that an earlier agent left and that nobody wants are taken away too. */
  private async applyNetworks(items: readonly Wanted[], full: boolean): Promise<void> {
    const listed = this.networkWorkers.apply(items, full);
    if (!full) return;
    const { networks } = this.drivers!;
    for (const { id } of await networks.list()) {
      if (listed.has(`vpc/${id}`)) continue;
      // One that cannot be taken away now must not hold up the others; the next full comparison tries again.
      await networks.remove(id).catch((error: unknown) => {
        this.options.log.error({ vpc: id, error: String(error) }, 'could not end what is not wanted');
      });
    }
  }

  /** The same for machines. */
  private async applyMachines(items: readonly Wanted[], full: boolean): Promise<void> {
    const listed = this.machineWorkers.apply(items, full);
    if (!full) return;
    const { machines } = this.drivers!;
    for (const { id } of await machines.list()) {
      if (listed.has(`vm/${id}`)) continue;
      await machines.remove(id).catch((error: unknown) => {
        this.options.log.error({ vm: id, error: String(error) }, 'could not end what is not wanted');
      });
    }
  }

  private makeWorker(kind: AgentKind, id: string): Worker | null {
    const { builds, replicas, jobs } = this.drivers!;
    const { blobs, shipper, reporter, outcomes, places } = this;
    const { log } = this.options;
    if (kind === 'build')
      return new BuildWorker(id, { driver: builds, blobs, shipper, reporter, outcomes, places, log });
    if (kind === 'run') {
      const { runRecords: records, runPlaces } = this;
      return new RunWorker(id, { driver: jobs, blobs, shipper, reporter, records, places: runPlaces, log });
    }
    const wakeable = (this.options.wake ?? null) !== null;
    if (kind === 'replica')
      return new ReplicaWorker(id, { driver: replicas, blobs, shipper, reporter, log, wakeable });
    return null;
  }

  private makeMachineWorker(kind: AgentKind, id: string): Worker | null {
    const { machines: driver } = this.drivers!;
    const parts = { driver, blobs: this.machineBlobs, reporter: this.machineReporter, log: this.options.log };
    if (kind === 'vm') return new MachineWorker(id, parts);
    if (kind === 'backup')
      return new BackupWorker(id, { ...parts, places: this.backupPlaces, dir: this.backupDir() });
    return null;
  }

  private makeNetworkWorker(kind: AgentKind, id: string): Worker | null {
    const { networks: driver } = this.drivers!;
    return kind === 'vpc'
      ? new VpcWorker(id, { driver, reporter: this.networkReporter, log: this.options.log })
      : null;
  }
}
