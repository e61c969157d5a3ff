import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { Database } from '@nebo/persistence';
import { type Lifecycle, statesOf, type StateDefinition } from './lifecycle.js';
import { Leases } from './leases.js';
import { type Going, runStep, type StepParts, type Stepped } from './step.js';
import { type Claim, claim, LeaseLost, pruneEnded, release } from './table.js';

/** Which step something is told about. */
export interface StepInfo {
  kind: string;
  id: string;
  state: string;
}

/** Where metrics and logs hook in; every method is optional, none may throw. */
export interface LifecycleObserver {
  /** A step ended in this way, after so many milliseconds. */
  stepped?(step: StepInfo, outcome: 'go' | 'wait' | 'fail' | 'end' | 'missed' | 'retry', ms: number): void;
  /** A deadline was missed: somebody should look. */
  missed?(step: StepInfo, reason: string): void;
  /** A step threw; it is tried again in `retryMs`. */
  threw?(step: StepInfo, error: Error, attempt: number, retryMs: number): void;
  /** A write was refused since another worker has the thing. */
  leaseLost?(step: StepInfo): void;
  /** The worker itself has trouble (PostgreSQL is away). */
  trouble?(error: Error): void;
  /** Runs around each step, for the span of a trace; must call `run` and hand back what comes of it. */
  around?<T>(step: StepInfo, run: () => Promise<T>): Promise<T>;
}

export interface LifecycleWorkerOptions {
  /** Shown in `lease_owner`. */
  owner?: string;
  /** Length of a lease in milliseconds, at most 30,000: how long a thing stands still when its worker was killed. */
  leaseMs?: number;
  /** How often leases are renewed; a third of the lease, so that two renewals may fail. */
  renewMs?: number;
  /** Safety poll: what a lost notification costs at most. */
  pollMs?: number;
  /** Steps at a time. */
  concurrency?: number;
  /** Wait after a thrown error: base, twice the base, … with jitter. */
  backoff?: { baseMs: number; maxMs: number };
  /** How long `stop` waits for running steps before it gives their leases back. */
  stopMs?: number;
  /** How long ended lives are kept. */
  keepEndedMs?: number;
  observer?: LifecycleObserver;
}

/** Least time between two looks at the table, milliseconds: what becomes due in a burst is taken in one statement. */
const gatherMs = 10;

/** Takes the steps of all lifecycles given to it. Any number of workers, in any number of processes, share a table. */
export class LifecycleWorker {
  readonly owner: string;
  private readonly lifecycles = new Map<
    string,
    { lifecycle: Lifecycle<unknown>; states: ReadonlyMap<string, StateDefinition> }
  >();
  private readonly kinds: string[];
  private readonly leaseMs: number;
  private readonly pollMs: number;
  private readonly concurrency: number;
  private readonly stopMs: number;
  private readonly keepEndedMs: number;
  private readonly parts: StepParts;
  private readonly leases: Leases;
  /** A connection of its own: renewals must not queue behind the steps that use up the pool. */
  private readonly leaseDb: Database;
  /** Claims, and reads of the things themselves: single statements that need no transaction. */
  private readonly reads: Database;
  private readonly running = new Set<Promise<void>>();
  private readonly stopping = new AbortController();
  private readonly observer: LifecycleObserver;
  private loop: Promise<void> | undefined;
  private unlisten: (() => Promise<void>) | undefined;
  private dirty = false;
  /** Whether more may be due than there was room for: the end of a step is then the moment to look again. */
  private hungry = false;
  private wakeUp: (() => void) | undefined;
  private pruneAt = 0;

  /**
   * @throws TypeError for a doubled kind, or a deadline that leads nowhere
   * @throws RangeError for a lease of more than 30 s
   */
  constructor(
    private readonly db: Database,
    lifecycles: readonly Lifecycle<unknown>[],
    options: LifecycleWorkerOptions = {},
  ) {
    this.owner = options.owner ?? `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`;
    this.leaseMs = options.leaseMs ?? 10_000;
    this.pollMs = options.pollMs ?? 1_000;
    this.concurrency = options.concurrency ?? 8;
    this.stopMs = options.stopMs ?? 5_000;
    this.keepEndedMs = options.keepEndedMs ?? 30 * 86_400_000;
    this.observer = quiet(options.observer ?? {});
    if (this.leaseMs > 30_000) throw new RangeError('a lease lasts 30 s at most');
    for (const lifecycle of lifecycles) {
      if (this.lifecycles.has(lifecycle.kind))
        throw new TypeError(`two lifecycles of the kind ${lifecycle.kind}`);
      this.lifecycles.set(lifecycle.kind, { lifecycle, states: statesOf(lifecycle) });
    }
    this.kinds = [...this.lifecycles.keys()];
    this.leaseDb = new Database({ url: db.url, schema: db.schema, max: 1, onError: this.observer.trouble });
    this.reads = new Database({
      url: db.url,
      schema: db.schema,
      max: 2,
      account: 'system',
      onError: this.observer.trouble,
    });
    this.leases = new Leases(this.leaseDb, this.leaseMs, options.renewMs ?? this.leaseMs / 3, this.observer);
    this.parts = {
      db,
      reads: this.reads,
      leaseMs: this.leaseMs,
      backoff: options.backoff ?? { baseMs: 1_000, maxMs: 300_000 },
      observer: this.observer,
      stopping: this.stopping.signal,
    };
  }

  /** Begins to take steps. @throws when PostgreSQL cannot be reached now */
  async start(): Promise<void> {
    this.unlisten = await this.db.listen(`${this.db.schema}_lifecycle`, () => {
      this.wake();
      this.leases.lookSoon();
    });
    this.leases.start();
    this.loop = this.run();
  }

  /**
   * Takes no further step, asks running ones to end (their signal), waits for them up to `stopMs`, and gives back the
   * leases of those that go on: another worker continues at once and their late writes are refused.
   */
  async stop(): Promise<void> {
    if (this.stopping.signal.aborted) return;
    this.stopping.abort(new Error('the worker stops'));
    this.wakeUp?.();
    await this.loop;
    await this.unlisten?.();
    const limit = new AbortController();
    await Promise.race([
      Promise.all(this.running),
      delay(this.stopMs, undefined, { signal: limit.signal }).catch(() => undefined),
    ]);
    limit.abort();
    this.leases.stop();
    await Promise.all(this.leases.all().map((held) => release(this.db, held.claim).catch(() => undefined)));
    await Promise.all([this.leaseDb.close(), this.reads.close()]);
  }

  /** Looks for due things now. */
  wake(): void {
    this.dirty = true;
    this.wakeUp?.();
  }

  /** Steps that run now; for health. */
  get busy(): number {
    return this.running.size;
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.stopping.signal.aborted) {
      this.dirty = false;
      let pause = this.pollMs;
      try {
        const free = this.concurrency - this.running.size;
        // Until it is known: a step that ends meanwhile must not be the last one.
        this.hungry = true;
        if (free > 0) {
          const { claims, leftMs } = await claim(this.reads, this.kinds, free, this.owner, this.leaseMs);
          for (const claimed of claims) this.begin(claimed);
          this.hungry = claims.length === free;
          // A thing may be due and yet not claimed, while a caller's open transaction has its row: look again soon, do not spin.
          if (!this.hungry) pause = Math.min(pause, Math.max(20, leftMs));
        }
        if (Date.now() >= this.pruneAt) {
          this.pruneAt = Date.now() + 600_000;
          await pruneEnded(this.db, this.keepEndedMs);
        }
        failures = 0;
      } catch (error) {
        this.observer.trouble?.(error as Error);
        failures += 1;
        pause = Math.min(5_000, 100 * 2 ** failures);
        this.dirty = false;
      }
      await this.pause(this.dirty ? gatherMs : pause, this.dirty);
    }
  }

  /** @param whole not to be cut short by what is due now */
  private async pause(ms: number, whole: boolean): Promise<void> {
    if (this.stopping.signal.aborted) return;
    await new Promise<void>((resolve) => {
      // One millisecond more: PostgreSQL's clock counts microseconds, waking too early would spin.
      const timer = setTimeout(resolve, Math.max(0, ms) + 1);
      this.wakeUp = () => {
        if (whole && !this.stopping.signal.aborted) return;
        clearTimeout(timer);
        resolve();
      };
    });
    this.wakeUp = undefined;
  }

  private begin(claimed: Claim): void {
    // A claim that came back after `stop` has begun is not lived; it is given back at once.
    const work = this.live(claimed).then((againMs) => {
      this.running.delete(work);
      if (this.hungry || againMs <= 0) this.wake();
      // What is due later than the next poll is seen by it.
      else if (againMs < this.pollMs) setTimeout(() => this.wake(), againMs).unref();
    });
    this.running.add(work);
  }

  /**
   * Takes step after step of one thing, until it waits or ends. Never throws: one thing's trouble is its own.
   * @returns milliseconds until it is due again
   */
  private async live(claimed: Claim): Promise<number> {
    const { lifecycle, states } = this.lifecycles.get(claimed.kind)!;
    const held = this.leases.hold(claimed);
    try {
      for (let at: Going = { next: claimed, subject: undefined }; ;) {
        held.claim = at.next;
        if (this.stopping.signal.aborted) {
          await release(this.db, held.claim);
          return Infinity;
        }
        const { subject } = at;
        const step = (): Promise<Stepped> => runStep(this.parts, held, lifecycle, states, subject);
        const stepped: Stepped = await (this.observer.around?.(held.claim, step) ?? step());
        if (stepped.next === null) return stepped.againMs;
        at = stepped;
      }
    } catch (error) {
      if (error instanceof LeaseLost) this.observer.leaseLost?.(held.claim);
      // Otherwise the write itself failed (PostgreSQL is away): the lease runs out and the step is taken again.
      else this.observer.trouble?.(error as Error);
      return 0;
    } finally {
      this.leases.drop(held);
    }
  }
}

/** An observer that cannot disturb the work. */
function quiet(observer: LifecycleObserver): LifecycleObserver {
  const guarded =
    <A extends unknown[]>(method: ((...args: A) => void) | undefined) =>
    (...args: A): void => {
      try {
        method?.apply(observer, args);
      } catch {
        // A metric that fails must not fail the step it counts.
      }
    };
  return {
    stepped: guarded(observer.stepped),
    missed: guarded(observer.missed),
    threw: guarded(observer.threw),
    leaseLost: guarded(observer.leaseLost),
    trouble: guarded(observer.trouble),
    ...(observer.around ? { around: (step, run) => observer.around!(step, run) } : {}),
  };
}
