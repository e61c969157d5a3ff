import { type Route, type RoutesAnswer } from '@nebo/contracts';
import { abortable, sleep } from '../abortable.js';
import { type ArtifactStore } from '../artifacts/artifact-store.js';
import { type EdgeLogger } from '../observe/logger.js';
import { type EdgeMetrics } from '../observe/metrics.js';
import { Deliveries } from './deliveries.js';
import { edgeId } from './edge-id.js';
import { type RouteFile } from './route-file.js';
import { type RouteSource } from './route-source.js';
import { RouteTable } from './route-table.js';
import { type Snapshot } from './snapshot.js';
import { usableAnswer } from './validate.js';

/** Told of routes that went live, with the version of the answer that they belong to. */
export type AppliedListener = (version: string, routes: Route[]) => void;

export interface SyncTimes {
  /** How long the control plane may hold a poll back. */
  waitMs: number;
  /** Everything is compared anew after this time at the latest. */
  fullEveryMs: number;
  /** Pause after an answer that brought nothing and came at once: a source without long polling. */
  idlePauseMs: number;
  /** Longest pause after failures. */
  maxBackoffMs: number;
}

export interface SyncStatus {
  /** ISO time of the last answer; null in a process that had none. */
  fetchedAt: string | null;
  /** Message of the last fetch, if it failed. */
  lastError: string | null;
  pending: { host: string; app_id: string; artifact_sha256: string; reason: string | null }[];
}

/** Time that a call may take beyond what it was allowed to wait. */
const CALL_MS = 10_000;
/** Time for the goodbye of an edge that stops. */
const LEAVE_MS = 1_000;
/** Pause before a confirmation that failed is repeated. */
const CONFIRM_AGAIN_MS = 1_000;

/**
 * Keeps the routes as the control plane wants them. Level-triggered: it asks, applies what differs, and compares
 * everything at start and periodically; a lost hint costs time only. While nobody answers, the last state is served.
 */
export class Synchronizer {
  private readonly table: RouteTable;
  private readonly deliveries: Deliveries;
  private readonly listeners = new Set<AppliedListener>();
  private readonly stopping = new AbortController();
  /** Ends the wait that the loop is in (a held-back poll or a pause). */
  private interrupt = new AbortController();
  private loop: Promise<void> | null = null;
  /** By which the control plane knows this edge; empty before the start. */
  private id = '';
  private refreshes: (() => void)[] = [];
  private unconfirmed = new Map<string, Route>();
  private confirming: Promise<void> | null = null;
  private sweeping: Promise<unknown> | null = null;
  private isSweptAgain = false;
  private version: string | null = null;
  private fetchedAt: number | null = null;
  private lastError: string | null = null;

  constructor(
    private readonly source: RouteSource,
    private readonly store: ArtifactStore,
    private readonly file: RouteFile,
    /** Where the edge's own name is kept. */
    private readonly idPath: string,
    private readonly times: SyncTimes,
    private readonly logger: EdgeLogger,
    private readonly metrics: EdgeMetrics,
  ) {
    this.table = new RouteTable((sha256) => store.site(sha256));
    this.deliveries = new Deliveries(store, logger, () => this.changed(this.table.settle()));
  }

  /** What requests are to be answered from; null until anything was ever known. */
  get snapshot(): Snapshot | null {
    return this.table.current;
  }

  /** Takes up the stored routes and starts asking. Does not wait for the control plane. */
  async start(): Promise<void> {
    this.id = await edgeId(this.idPath, this.logger);
    const stored = await this.file.read();
    if (stored) {
      for (const { target } of [...stored.serving, ...stored.routes]) {
        if (target.kind === 'static') await this.store.open(target.artifact_sha256);
      }
      this.version = stored.version;
      this.table.restore(stored);
      this.deliveries.want(this.table.pending());
      this.measure();
    }
    this.loop = this.run();
  }

  /** Ends all calls and waits for what is being written. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.interrupt.abort();
    await this.deliveries.stop();
    await this.loop;
    await this.confirming;
    await this.leave();
    while (this.sweeping) await this.sweeping;
    await this.file.save(() => this.table.stored());
  }

  /** Asks at once. Resolves when that answer was applied or the attempt failed; artifacts may still be under way. */
  refresh(): Promise<void> {
    if (this.stopping.signal.aborted) return Promise.resolve();
    const done = new Promise<void>((resolve) => this.refreshes.push(resolve));
    this.interrupt.abort();
    return done;
  }

  /** Adds a listener; the answer removes it. */
  onApplied(listener: AppliedListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  status(): SyncStatus {
    return {
      fetchedAt: this.fetchedAt === null ? null : new Date(this.fetchedAt).toISOString(),
      lastError: this.lastError,
      pending: this.table.pending().map(({ host, app_id, artifact_sha256 }) => {
        return { host, app_id, artifact_sha256, reason: this.deliveries.reason(artifact_sha256) };
      }),
    };
  }

  private async run(): Promise<void> {
    let failures = 0;
    let lastFull = -Infinity;
    while (!this.stopping.signal.aborted) {
      this.interrupt = new AbortController();
      const asked = this.refreshes;
      this.refreshes = [];
      const full = this.version === null || performance.now() - lastFull >= this.times.fullEveryMs;
      const waitMs = full || asked.length > 0 || failures > 0 ? 0 : this.times.waitMs;
      const began = performance.now();
      let pause = 0;
      try {
        const news = await this.fetch(full ? null : this.version, waitMs);
        failures = 0;
        if (full) lastFull = began;
        if (!news && performance.now() - began < this.times.idlePauseMs) pause = this.times.idlePauseMs;
      } catch (error) {
        // A poll that refresh() cut short is no failure.
        if (waitMs === 0 || !this.interrupt.signal.aborted) {
          failures++;
          this.lastError = error instanceof Error ? error.message : String(error);
          this.metrics.fetched(false);
          this.logger.warn(
            { err: error, failures },
            'the routes could not be fetched; the last known ones are served',
          );
          pause =
            Math.min(this.times.maxBackoffMs, 250 * 2 ** Math.min(failures - 1, 10)) *
            (0.5 + Math.random() / 2);
        }
      }
      for (const done of asked) done();
      if (pause > 0 && this.refreshes.length === 0) await sleep(pause, this.interrupt.signal);
    }
    for (const done of this.refreshes) done();
  }

  /** @returns whether the version moved: a source that repeats itself must not make the loop spin */
  private async fetch(since: string | null, waitMs: number): Promise<boolean> {
    const limit = AbortSignal.timeout(waitMs + CALL_MS);
    // A call that was asked for by refresh() is not cut short by the next one: that one follows it.
    const signals =
      waitMs > 0 ? [this.stopping.signal, this.interrupt.signal, limit] : [this.stopping.signal, limit];
    const signal = AbortSignal.any(signals);
    const value: RoutesAnswer = await abortable(
      this.source.fetchRoutes(since, signal, waitMs, this.id),
      signal,
    );
    const usable = usableAnswer(value);
    if (!usable) throw new Error('the answer of the control plane is malformed');
    if (usable.dropped.length > 0)
      this.logger.error({ hosts: usable.dropped }, 'malformed routes are left out');
    const { answer } = usable;
    this.metrics.fetched(true);
    this.fetchedAt = Date.now();
    this.lastError = null;
    const moved = answer.version !== this.version;
    if (moved || answer.full || answer.routes.length > 0 || answer.removed.length > 0) {
      this.version = answer.version;
      this.changed(this.table.apply(answer));
    }
    return moved;
  }

  /** After every change: what is missing is fetched, the state is stored, then what went live is told. */
  private changed(applied: Route[]): void {
    this.deliveries.want(this.table.pending());
    this.measure();
    const { version } = this;
    const stored = this.file.save(() => this.table.stored());
    this.sweep();
    if (applied.length === 0 || version === null) return;
    // Told only when it is on disk too: what the control plane calls live is served after a crash as well.
    void stored.then(() => this.tell(version, applied));
  }

  private tell(version: string, applied: Route[]): void {
    for (const route of applied) this.unconfirmed.set(route.host, route);
    for (const listener of this.listeners) {
      try {
        listener(version, applied);
      } catch (error) {
        this.logger.error({ err: error }, 'a listener of applied routes failed');
      }
    }
    this.confirm();
  }

  /** Tells the control plane what is live; what could not be told is told again a little later. */
  private confirm(): void {
    if (
      !this.source.confirm ||
      this.confirming ||
      this.stopping.signal.aborted ||
      this.unconfirmed.size === 0 ||
      this.version === null
    )
      return;
    const routes = [...this.unconfirmed.values()];
    this.unconfirmed = new Map();
    const signal = AbortSignal.any([this.stopping.signal, AbortSignal.timeout(CALL_MS)]);
    let failed = false;
    this.confirming = abortable(this.source.confirm(this.version, routes, signal, this.id), signal)
      .catch((error: unknown) => {
        failed = true;
        // Newer routes of the same hosts win over the ones that could not be told.
        for (const route of routes)
          if (!this.unconfirmed.has(route.host)) this.unconfirmed.set(route.host, route);
        if (!this.stopping.signal.aborted)
          this.logger.warn({ err: error }, 'live routes could not be confirmed; repeated later');
      })
      .finally(() => {
        this.confirming = null;
        if (!failed) this.confirm();
        else if (!this.stopping.signal.aborted) setTimeout(() => this.confirm(), CONFIRM_AGAIN_MS).unref();
      });
  }

  /** One that stops takes no new routes: deploys must not wait for it. */
  private async leave(): Promise<void> {
    if (!this.source.leave || this.fetchedAt === null) return;
    const signal = AbortSignal.timeout(LEAVE_MS);
    await abortable(this.source.leave(this.id, signal), signal).catch((error: unknown) =>
      this.logger.debug({ err: error }, 'the control plane did not hear that this edge leaves'),
    );
  }

  /** One at a time; a change during one may come after its look, and has another. */
  private sweep(): void {
    if (this.sweeping) {
      this.isSweptAgain = true;
      return;
    }
    this.sweeping = this.store
      .collect((sha256) => this.table.needs(sha256))
      .catch((error: unknown) => this.logger.warn({ err: error }, 'unused artifacts could not be removed'))
      .finally(() => {
        this.sweeping = null;
        if (!this.isSweptAgain) return;
        this.isSweptAgain = false;
        this.sweep();
      });
  }

  private measure(): void {
    this.metrics.routes(this.table.current?.size ?? 0, this.table.pending().length);
  }
}
