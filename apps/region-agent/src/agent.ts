import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentKind, type Wanted } from '@nebo/contracts';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { type AgentLog } from './agent-log.js';
import { type ControlPlane, Superseded } from './control/control-plane.js';
import { createDrivers, type AgentDrivers } from './drivers/create.js';
import { type BlobAccess, type Egress } from './drivers/types.js';
import { LogShipper } from './log/log-shipper.js';
import { BuildWorker } from './reconcile/build-worker.js';
import { Outcomes } from './reconcile/outcomes.js';
import { ReplicaWorker } from './reconcile/replica-worker.js';
import { Reporter } from './reconcile/reporter.js';
import { type Worker } from './reconcile/worker.js';
import { Runs } from './system/runs.js';
import { Backoff, ignoreAbort, Places, sleep } from './system/timing.js';

export interface RegionAgentOptions {
  controlPlane: ControlPlane;
  /** Folder of this agent alone. */
  home: string;
  log: AgentLog;
  /** Default: chosen by probe and `NEBO_DRIVERS`. */
  drivers?: AgentDrivers;
  /** The guarded proxy for builds and replicas; null: they have no way out. Default: one that the agent runs itself. */
  egress?: Egress | null;
  settings?: Partial<AgentSettings>;
}

export interface AgentSettings {
  /** Builds at a time. */
  builds: number;
  /** Seconds that a question for news may wait. */
  waitSeconds: number;
  /** Milliseconds between full comparisons. */
  fullMs: number;
}

const defaults: AgentSettings = { builds: 2, waitSeconds: 30, fullMs: 60_000 };

/** What the agent is doing, for health checks. */
export interface AgentStatus {
  state: 'starting' | 'connecting' | 'connected' | 'superseded' | 'stopped';
  region_id: string | null;
  epoch: number | null;
  drivers: Record<string, { driver: string; isolated: boolean; why: string }>;
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
  private readonly workers = new Map<string, Worker>();
  private readonly shipper: LogShipper;
  private readonly reporter: Reporter;
  private readonly outcomes: Outcomes;
  private readonly blobs: BlobAccess;
  private drivers: AgentDrivers | null;
  private proxy: EgressProxy | null = null;
  private places: Places;
  private loop: Promise<void> = Promise.resolve();
  private stopped: Promise<void> | null = null;
  private current: AgentStatus = { state: 'starting', region_id: null, epoch: null, drivers: {} };

  constructor(private readonly options: RegionAgentOptions) {
    const { controlPlane, home, log } = options;
    this.settings = { ...defaults, ...options.settings };
    this.drivers = options.drivers ?? null;
    this.places = new Places(this.settings.builds);
    this.outcomes = new Outcomes(join(home, 'outcomes'));
    const send = this.guarded.bind(this);
    this.shipper = new LogShipper({
      dir: join(home, 'log-seq'),
      log,
      send: (stream, batch, signal) => send(controlPlane.log(stream, batch, signal)),
    });
    this.reporter = new Reporter(
      (items, signal) => controlPlane.observed(items, signal),
      log,
      () => this.supersede(),
    );
    this.blobs = {
      get: (sha256, signal) => send(controlPlane.getBlob(sha256, signal)),
      put: (blob, source, signal) => send(controlPlane.putBlob(blob.sha256, blob.bytes, source, signal)),
    };
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
      const fields = { area, driver: choice.driver, isolated: choice.isolated };
      if (choice.isolated) log.info(fields, `${area}: ${choice.driver}, ${choice.why}`);
      else log.warn(fields, `${area}: ${choice.driver}, NOT ISOLATED: ${choice.why}`);
    }
    await Promise.all([
      this.drivers.builds.start(),
      this.drivers.replicas.start(),
      this.shipper.start(),
      this.outcomes.start(),
    ]);
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
    await this.loop;
    await Promise.all([...this.workers.values()].map((worker) => worker.stop()));
    await this.drivers?.replicas.stop();
    await this.proxy?.stop();
    await Promise.all([this.shipper.stop(graceMs), this.reporter.stop(graceMs)]);
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
    const { controlPlane, log } = this.options;
    const { signal } = this.stopping;
    const backoff = new Backoff(200, 5_000);
    let cursor: string | null = null;
    let fullAt = 0;
    let session = false;
    let quiet = false;
    while (!signal.aborted) {
      try {
        if (!session) {
          const taken = await controlPlane.openSession(signal);
          session = true;
          this.current = {
            ...this.current,
            state: 'connected',
            region_id: taken.region_id,
            epoch: taken.epoch,
          };
          log.info({ region: taken.region_id, epoch: taken.epoch }, 'took the region');
        }
        const full = cursor === null || Date.now() >= fullAt;
        const left = Math.max(1, Math.ceil((fullAt - Date.now()) / 1000));
        const wait = full ? 0 : Math.min(this.settings.waitSeconds, left);
        const asked = Date.now();
        const answer = await controlPlane.wanted(full ? null : cursor, wait, signal);
        cursor = answer.cursor;
        if (full || answer.full) fullAt = Date.now() + this.settings.fullMs;
        if (quiet || this.current.state === 'connecting') {
          log.info({}, 'the control plane is back');
          // It may have lost what it was told.
          this.reporter.resend();
          cursor = null;
        }
        quiet = false;
        this.current = { ...this.current, state: 'connected' };
        backoff.reset();
        await this.apply(answer.items, answer.full);
        // A control plane that does not wait must not be asked without end.
        if (!full && answer.items.length === 0 && Date.now() - asked < 50) await sleep(200, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) {
          this.supersede();
          return;
        }
        if (!quiet)
          log.warn({ error: String(error) }, 'the control plane does not answer; what runs goes on running');
        quiet = true;
        this.current = { ...this.current, state: 'connecting' };
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }

  private async apply(items: readonly Wanted[], full: boolean): Promise<void> {
    for (const item of items) this.worker(item.kind, item.id)?.want(item);
    if (!full) return;
    const listed = new Set(items.map((item) => `${item.kind}/${item.id}`));
    for (const [key, worker] of this.workers) {
      if (listed.has(key)) continue;
      // Known until it is over: if it is wanted again meanwhile, the next full comparison makes it anew.
      void worker.vanished().then(
        () => this.workers.delete(key),
        (error: unknown) =>
          this.options.log.error({ key, error: String(error) }, 'could not end what is not wanted'),
      );
    }
    for (const id of this.outcomes.ids()) if (!listed.has(`build/${id}`)) await this.outcomes.drop(id);
    for (const { id } of this.drivers!.replicas.list())
      if (!listed.has(`replica/${id}`)) await this.drivers!.replicas.remove(id);
  }

  private worker(kind: AgentKind, id: string): Worker | null {
    const key = `${kind}/${id}`;
    const known = this.workers.get(key);
    if (known) return known;
    const { builds, replicas } = this.drivers!;
    const { blobs, shipper, reporter, outcomes, places } = this;
    const log = this.options.log;
    let worker: Worker;
    if (kind === 'build')
      worker = new BuildWorker(id, { driver: builds, blobs, shipper, reporter, outcomes, places, log });
    else if (kind === 'replica')
      worker = new ReplicaWorker(id, { driver: replicas, blobs, shipper, reporter, log });
    else {
      log.warn({ kind, id }, 'this agent does not know such a kind');
      return null;
    }
    this.workers.set(key, worker);
    return worker;
  }
}
