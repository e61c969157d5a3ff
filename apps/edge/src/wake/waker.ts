import { randomUUID } from 'node:crypto';
import { type ReplicaHold, type WakeDesk, WakeRefused, type WakeRefusalCode } from '@nebo/contracts';
import { type Http1Pool } from '@nebo/http1';
import { sleep } from '../abortable.js';
import { type WakeMetrics } from '../observe/wake-metrics.js';
import { type Replica } from '../routes/snapshot.js';

/** How long an agent may go on calling a life of a replica ready that takes no connection. */
const DEAD_MS = 2_000;
/**
 * A replica that hung up on a request is not given another one for so long. A process that ends closes what it was asked over
 * before it closes what it listens to: in between it takes connections whose requests are lost.
 */
const DOUBT_MS = 50;

/** Limits of waiting; milliseconds and requests. */
export interface WakeTimes {
  /** Requests that may wait for one app, and for all apps of this edge. */
  wakeQueue: number;
  wakeQueueTotal: number;
  /** How long one request may wait. */
  wakeTimeoutMs: number;
  /** How long an agent that does not answer, or does not know the replica yet, is asked again. */
  wakePatienceMs: number;
}

/** Why a request is not waiting any more: the agent's words, and the edge's own. */
export type NotWoken = WakeRefusalCode | 'queue_full' | 'timeout' | 'moved';

/** Thrown to a request that cannot be given a replica. */
export class WakeFailed extends Error {
  constructor(
    readonly code: NotWoken,
    readonly retryAfterMs: number,
  ) {
    super(`no replica: ${code}`);
    this.name = 'WakeFailed';
  }
}

/** A replica that does not sleep before `done`. */
export interface Lease {
  replica: Replica;
  /** Connections of this hold alone: none outlives it and meets another app at the same address. */
  pool: Http1Pool<Replica>;
  /** The use is over. May be called twice. */
  done(): void;
  /** The replica does not take connections: what comes next has to ask the agent again. */
  lost(): void;
  /** The replica hung up on a request, as one that is ending does: who comes next waits for a moment. */
  hungUp(): void;
}

interface Waiter {
  /** Whether the route still leads here. */
  still: () => boolean;
  resolve(lease: Lease): void;
  reject(error: WakeFailed): void;
}

interface Held {
  holder: string;
  replica: Replica;
  life: number;
  pool: Http1Pool<Replica>;
  active: number;
  idleMs: number;
  /** The address is not used after this, unless the hold was renewed. */
  validUntil: number;
  /** Nor before this. */
  doubtedUntil: number;
  idleTimer: NodeJS.Timeout | null;
  renewTimer: NodeJS.Timeout | null;
}

interface App {
  id: string;
  waiters: Set<Waiter>;
  /** When the first of those who wait came; null: nobody asks the agent. */
  heldSince: number | null;
  held: Held | null;
  /** A life of the replica that took no connection, and since when that is known. */
  dead: { life: number; since: number } | null;
}

export interface WakerParts {
  desk: WakeDesk | null;
  times: WakeTimes;
  metrics: WakeMetrics;
  /** Connections of their own. */
  connect: () => Http1Pool<Replica>;
}

/** Holds requests until their replica is awake, and replicas awake as long as there are requests. */
export class Waker {
  private readonly edge = randomUUID();
  private readonly apps = new Map<string, App>();
  private readonly stopping = new AbortController();
  private readonly unsubscribe: () => void;
  private waiting = 0;
  private holds = 0;

  constructor(private readonly parts: WakerParts) {
    this.unsubscribe =
      parts.desk?.onLost(() => {
        for (const app of this.apps.values()) this.forget(app);
      }) ?? (() => undefined);
  }

  /**
   * A replica to send one request to, awake and ready.
   * @param left fires when the client has left: nobody waits any more then
   * @param still whether the route still leads to this replica
   * @throws WakeFailed; the signal's reason when the client left
   */
  async acquire(id: string, left: AbortSignal, still: () => boolean): Promise<Lease> {
    const { times, metrics, desk } = this.parts;
    const doubt = (this.apps.get(id)?.held?.doubtedUntil ?? 0) - performance.now();
    if (doubt > 0) await sleep(doubt, left);
    if (!desk || this.stopping.signal.aborted) throw new WakeFailed('away', 5_000);
    const app = this.appOf(id);
    if (app.held && app.held.validUntil > performance.now()) return this.lease(app, app.held);
    if (app.waiters.size >= times.wakeQueue || this.waiting >= times.wakeQueueTotal) {
      metrics.refused('queue_full');
      throw new WakeFailed('queue_full', 2_000);
    }
    return new Promise((resolve, reject) => {
      if (left.aborted) return reject(left.reason as Error);
      const over = (): void => {
        clearTimeout(timer);
        left.removeEventListener('abort', leave);
        if (app.waiters.delete(waiter)) metrics.waiting(--this.waiting);
      };
      const waiter: Waiter = {
        still,
        resolve: (lease) => (over(), resolve(lease)),
        reject: (error) => (over(), metrics.refused(error.code), reject(error)),
      };
      const leave = (): void => (over(), reject(left.reason as Error));
      const timer = setTimeout(() => waiter.reject(new WakeFailed('timeout', 5_000)), times.wakeTimeoutMs);
      left.addEventListener('abort', leave, { once: true });
      app.waiters.add(waiter);
      metrics.waiting(++this.waiting);
      if (app.heldSince === null) void this.ask(app, desk);
    });
  }

  /** Sends away whoever waits. Holds are not given back: what they keep awake is used again after a restart, or lapses. */
  stop(): void {
    this.stopping.abort();
    this.unsubscribe();
    for (const app of this.apps.values()) {
      for (const waiter of [...app.waiters]) waiter.reject(new WakeFailed('away', 2_000));
      app.held?.pool.destroy();
      this.forget(app);
    }
  }

  /** Asks the agent until it gives the hold or says no. One at a time for each app. */
  private async ask(app: App, desk: WakeDesk): Promise<void> {
    const { times, metrics } = this.parts;
    app.heldSince = performance.now();
    let awaySince: number | null = null;
    while (!this.stopping.signal.aborted) {
      const holder = `${this.edge}.${++this.holds}`;
      const sent = performance.now();
      try {
        const limit = AbortSignal.any([
          this.stopping.signal,
          AbortSignal.timeout(times.wakeTimeoutMs + 60_000),
        ]);
        const hold = await desk.hold(holder, app.id, limit);
        if (app.dead?.life === hold.life && performance.now() - app.dead.since < DEAD_MS) {
          // The edge saw it before the agent did, which will in a moment.
          await sleep(50, this.stopping.signal);
          continue;
        }
        if (hold.started) metrics.woken((performance.now() - app.heldSince) / 1000);
        this.take(app, holder, hold, sent);
        break;
      } catch (error) {
        const refusal = error instanceof WakeRefused ? error : new WakeRefused('away');
        const absent = refusal.code === 'away' || refusal.code === 'unknown';
        // An agent that was restarted, or one that has not heard of a new replica yet, answers in a moment.
        awaySince ??= performance.now();
        if (absent && app.waiters.size > 0 && performance.now() - awaySince < times.wakePatienceMs) {
          this.sendOn(app);
          await sleep(100, this.stopping.signal);
          continue;
        }
        metrics.notWoken(refusal.code);
        this.sendOn(app);
        const retryAfterMs = absent ? 5_000 : refusal.retryAfterMs;
        for (const waiter of [...app.waiters]) waiter.reject(new WakeFailed(refusal.code, retryAfterMs));
        break;
      }
    }
    app.heldSince = null;
    app.dead = null;
    this.drop(app);
  }

  /** Those whose route leads elsewhere by now go there. */
  private sendOn(app: App): void {
    for (const waiter of [...app.waiters]) if (!waiter.still()) waiter.reject(new WakeFailed('moved', 0));
  }

  private take(app: App, holder: string, hold: ReplicaHold, sent: number): void {
    const replica = { id: app.id, host: hold.host, port: hold.port };
    const held: Held = {
      holder,
      replica,
      life: hold.life,
      pool: this.parts.connect(),
      active: 0,
      idleMs: hold.idle_ms,
      validUntil: sent + hold.lease_ms,
      doubtedUntil: 0,
      idleTimer: null,
      renewTimer: null,
    };
    this.forget(app);
    app.held = held;
    this.renewLater(app, held, hold.lease_ms / 3);
    for (const waiter of [...app.waiters]) waiter.resolve(this.lease(app, held));
    if (held.active === 0) this.giveBackLater(app, held);
  }

  private lease(app: App, held: Held): Lease {
    held.active++;
    if (held.idleTimer) clearTimeout(held.idleTimer);
    held.idleTimer = null;
    let open = true;
    return {
      replica: held.replica,
      pool: held.pool,
      done: () => {
        if (!open) return;
        open = false;
        held.active--;
        if (held.active > 0) return;
        if (app.held === held) this.giveBackLater(app, held);
        else held.pool.destroy();
      },
      lost: () => {
        if (app.held !== held) return;
        app.dead = { life: held.life, since: performance.now() };
        this.forget(app);
      },
      hungUp: () => {
        held.doubtedUntil = performance.now() + DOUBT_MS;
      },
    };
  }

  /** Leaves an address; requests under way over it may end. */
  private forget(app: App): void {
    const { held } = app;
    if (!held) return;
    app.held = null;
    for (const timer of [held.idleTimer, held.renewTimer]) if (timer) clearTimeout(timer);
    if (held.active === 0) held.pool.destroy();
    this.drop(app);
  }

  private giveBackLater(app: App, held: Held): void {
    held.idleTimer = setTimeout(() => {
      // First the address is forgotten, then the hold given back: nothing is sent in between.
      this.forget(app);
      this.parts.desk?.release(held.holder, app.id).then(
        (sleeps) => sleeps && this.parts.metrics.idled(),
        // A release that is lost costs memory until the hold lapses.
        () => undefined,
      );
    }, held.idleMs);
    held.idleTimer.unref();
  }

  private renewLater(app: App, held: Held, ms: number): void {
    held.renewTimer = setTimeout(() => void this.renew(app, held), ms);
    held.renewTimer.unref();
  }

  private async renew(app: App, held: Held): Promise<void> {
    const sent = performance.now();
    const hold = await this.parts.desk!.renew(held.holder, app.id).catch(() => undefined);
    if (app.held !== held) return;
    if (hold === undefined) {
      // No answer: as long as the hold has not lapsed, the agent keeps its word too.
      if (performance.now() < held.validUntil) this.renewLater(app, held, 1_000);
      else this.forget(app);
    } else if (hold?.life === held.life) {
      held.validUntil = sent + hold.lease_ms;
      this.renewLater(app, held, hold.lease_ms / 3);
    } else this.forget(app);
  }

  private appOf(id: string): App {
    const known = this.apps.get(id);
    if (known) return known;
    const app: App = { id, waiters: new Set(), heldSince: null, held: null, dead: null };
    this.apps.set(id, app);
    return app;
  }

  /** Nothing is kept of replicas that nobody uses. */
  private drop(app: App): void {
    const { waiters, heldSince, held, dead } = app;
    if (waiters.size === 0 && heldSince === null && held === null && dead === null) this.apps.delete(app.id);
  }
}
