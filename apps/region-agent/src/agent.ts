import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type RegionCapacity } from '@nebo/contracts';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { type AgentLog } from './agent-log.js';
import { AppArea } from './areas/app-area.js';
import { type Area } from './areas/area.js';
import { MachineArea } from './areas/machine-area.js';
import { NetworkArea } from './areas/network-area.js';
import { CacheSweeper } from './builds/cache/sweeper.js';
import { type ControlPlane, Superseded } from './control/control-plane.js';
import { createDrivers, type AgentDrivers } from './drivers/create.js';
import { type DriverChoice } from './drivers/probe.js';
import { egressOf } from './drivers/egress-env.js';
import { type Egress } from './drivers/types.js';
import { InventoryTeller } from './inventory/inventory-teller.js';
import { lookAround } from './inventory/look.js';
import { LogShipper } from './log/log-shipper.js';
import { Follower } from './reconcile/follower.js';
import { Runs } from './system/runs.js';
import { Backoff, ignoreAbort, sleep } from './system/timing.js';
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
  private readonly areas: readonly Area[];
  private readonly shipper: LogShipper;
  /** Services that do not answer at the moment. */
  private readonly silent = new Set<string>();
  /** Where an edge of this process asks for replicas. */
  readonly desk: ReplicaDesk;
  private readonly door: WakeDoor | null;
  private drivers: AgentDrivers | null;
  private proxy: EgressProxy | null = null;
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
    this.shipper = new LogShipper({
      dir: join(home, 'log-seq'),
      log,
      send: (stream, batch, signal) => this.guarded(controlPlane.log(stream, batch, signal)),
    });
    const common = {
      ...{ log, home, drivers: () => this.drivers!, superseded: () => this.supersede() },
      guarded: <T>(call: Promise<T>) => this.guarded(call),
    };
    const { builds, jobRuns, backups } = this.settings;
    this.areas = [
      new AppArea({
        ...{ ...common, plane: controlPlane, shipper: this.shipper, builds, jobRuns },
        wakeable: wake !== null,
      }),
      new NetworkArea({ ...common, plane: controlPlane.of('networking') }),
      new MachineArea({ ...common, plane: controlPlane.of('compute'), backups }),
    ];
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
    await Promise.all([
      this.drivers.builds.start(),
      this.drivers.replicas.start(),
      this.drivers.networks.start(),
      this.drivers.machines.start(),
      this.shipper.start(),
      ...this.areas.map((area) => area.start()),
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
    return egressOf(this.proxy);
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
    await Promise.all(this.areas.map((area) => area.stop()));
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
    const reports = this.areas.map(({ reporter }) => reporter.stop(graceMs));
    await Promise.all([this.shipper.stop(graceMs), ...reports]);
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
      ...this.areas.map((area) => this.follower(area).run(signal)),
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

  private follower(area: Area): Follower {
    const { service, plane, reporter } = area;
    const { waitSeconds, fullMs } = this.settings;
    return new Follower({
      service,
      plane,
      log: this.options.log,
      waitSeconds,
      fullMs,
      apply: (items, full) => area.apply(items, full),
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
}
