import { setTimeout as delay } from 'node:timers/promises';
import { type Database, type Ending, type Sql } from '@nebo/persistence';
import { humanDuration } from './duration.js';
import {
  type Change,
  type Effect,
  type Lifecycle,
  type Outcome,
  runState,
  type StateDefinition,
  type StepContext,
} from './lifecycle.js';
import { type Held } from './leases.js';
import { type Claim, LeaseLost, lostIn, release, writeEnd, writeGo, writeRest, writeWait } from './table.js';
import { type LifecycleObserver } from './worker.js';

/** What a step needs of its worker. */
export interface StepParts {
  db: Database;
  /** Sees the rows of all accounts without a transaction. */
  reads: Sql;
  leaseMs: number;
  backoff: { baseMs: number; maxMs: number };
  observer: LifecycleObserver;
  stopping: AbortSignal;
}

type States = ReadonlyMap<string, StateDefinition>;

/** The deadline passed while the method ran. */
class DeadlinePassed extends Error {
  override name = 'DeadlinePassed';
}

/** After its signal a method may take so long to end by itself before the missed deadline is written over its head. */
const endingMs = 2_000;

/** A thing in its next state, still held, and as it was read in the transaction that wrote so. */
export interface Going {
  readonly next: Claim;
  /** Undefined: to be read by the next step. */
  readonly subject: unknown;
}

/** What came of a step. */
export type Stepped =
  | Going
  /** It waits, ended or was given back; milliseconds until it is due again. */
  | { readonly next: null; readonly againMs: number };

/**
 * Takes one step: reads the subject, runs the state's method, writes what it decided in one transaction.
 * @param subject as the step before read it, undefined when there was none. The row of the life was locked then: who
 *   changed the thing since has woken it too, which the write of this step sees.
 * @throws LeaseLost when another worker has it; whatever PostgreSQL says when writing fails
 */
export async function runStep(
  parts: StepParts,
  held: Held,
  lifecycle: Lifecycle<unknown>,
  states: States,
  subject?: unknown,
): Promise<Stepped> {
  const step = new Step(parts, held, lifecycle, states);
  return step.run(subject);
}

class Step {
  private readonly startedAt = performance.now();
  private readonly claim: Claim;
  private readonly state: StateDefinition | undefined;

  constructor(
    private readonly parts: StepParts,
    private readonly held: Held,
    private readonly lifecycle: Lifecycle<unknown>,
    private readonly states: States,
  ) {
    this.claim = held.claim;
    this.state = states.get(this.claim.state);
  }

  async run(read: unknown): Promise<Stepped> {
    // A state that waited, or whose worker was killed in its first try, gets a last look at its subject after its deadline; one
    // that only failed has had its tries.
    const tries = this.claim.attempt - (this.claim.orphaned ? 1 : 0);
    if (this.deadlineLeft() <= 0 && tries > 1) return this.missed(this.claim.reason, false);
    let outcome: Outcome;
    try {
      const subject = read === undefined ? await this.lifecycle.load(this.parts.reads, this.claim.id) : read;
      if (subject === null) return await this.endWith(null, 'the thing itself is gone');
      outcome = await this.runMethod(subject);
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      return this.threw(error instanceof Error ? error : new Error(String(error)));
    }
    try {
      return await this.decide(outcome);
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      // An effect that fails is the step's failure: its transaction is undone, the step is tried again.
      return this.threw(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** Milliseconds until the state's deadline; Infinity without one. */
  private deadlineLeft(): number {
    const deadline = this.state?.deadline ?? Infinity;
    return deadline - this.claim.ageMs - (performance.now() - this.startedAt);
  }

  private async runMethod(subject: unknown): Promise<Outcome> {
    const { held, claim, parts } = this;
    const deadline = new AbortController();
    const woken = new AbortController();
    held.onWoken = () => woken.abort();
    const context: StepContext = {
      id: claim.id,
      signal: AbortSignal.any([held.lost.signal, parts.stopping, deadline.signal]),
      woken: woken.signal,
      attempt: claim.attempt,
      enteredAt: claim.enteredAt,
      reason: claim.reason,
    };
    const left = this.deadlineLeft();
    const timer = new LongTimer();
    const guard = async (): Promise<never> => {
      // A last look after the deadline gets the length of a lease.
      await timer.after(left > 0 ? left : parts.leaseMs);
      const error = new DeadlinePassed('it did not end');
      deadline.abort(error);
      await timer.after(endingMs);
      throw error;
    };
    try {
      const method = runState(this.lifecycle, claim.state, subject, context);
      return await (left === Infinity ? method : Promise.race([method, guard()]));
    } finally {
      timer.cancel();
      held.onWoken = undefined;
    }
  }

  private async decide(outcome: Outcome): Promise<Stepped> {
    switch (outcome.kind) {
      case 'go':
        return this.goTo(outcome.state, null, outcome.effect, 'go');
      case 'rest':
        return this.restIn(outcome.state, outcome.reason ?? null, outcome.effect);
      case 'end':
        return this.endWith(outcome.effect, null);
      case 'within':
        return this.goWithin(outcome.choose);
      case 'fail': {
        const target = outcome.state ?? this.state?.onMissed ?? null;
        if (target === null) return this.endWith(outcome.effect, outcome.reason);
        return this.goTo(target, outcome.reason, outcome.effect, 'fail');
      }
      case 'wait': {
        if (this.deadlineLeft() <= 0) return this.missed(outcome.reason ?? this.claim.reason, false);
        const deadlineMs = this.state?.deadline ?? null;
        const waitMs = Number.isFinite(outcome.ms) ? Math.max(0, outcome.ms) : null;
        const againMs = await this.wait({ waitMs, deadlineMs, reason: outcome.reason ?? null, attempt: 0 });
        return this.done('wait', { next: null, againMs });
      }
    }
  }

  private async threw(error: Error): Promise<Stepped> {
    const { claim, parts, held } = this;
    if (held.lost.signal.aborted) throw new LeaseLost(claim.kind, claim.id, claim.state);
    if (parts.stopping.aborted) {
      // Asked to end by the shutdown: not its fault, the next worker begins afresh.
      await release(parts.db, claim);
      return { next: null, againMs: Infinity };
    }
    const passed = error instanceof DeadlinePassed;
    if (passed || this.deadlineLeft() <= 0) return this.missed(passed ? claim.reason : error.message, passed);
    const { baseMs, maxMs } = parts.backoff;
    const full = Math.min(maxMs, baseMs * 2 ** Math.min(claim.attempt - 1, 30));
    // Jitter: a hundred things that failed for one cause must not come back in one moment.
    const waitMs = Math.ceil(full * (0.5 + Math.random() / 2));
    const deadlineMs = this.state?.deadline ?? null;
    const againMs = await this.wait({ waitMs, deadlineMs, reason: error.message, attempt: claim.attempt });
    parts.observer.threw?.(claim, error, claim.attempt, waitMs);
    return this.done('retry', { next: null, againMs });
  }

  /** @param over the method still runs: a new fence makes sure that nothing of it is written */
  private async missed(lastReason: string | null, over: boolean): Promise<Stepped> {
    const { name, deadline, onMissed } = this.state!;
    const reason = `${name} did not finish in ${humanDuration(deadline!)}${lastReason ? `: ${lastReason}` : ''}`;
    const next = await this.goTo(onMissed!, reason, undefined, 'missed', over);
    this.parts.observer.missed?.(this.claim, reason);
    return next;
  }

  private async goTo(
    state: string,
    reason: string | null,
    effect: Effect | undefined,
    how: 'go' | 'fail' | 'missed',
    newFence = false,
  ): Promise<Stepped> {
    const going = await this.transaction(async (tx) => {
      const ofEffect = await effect?.(tx);
      return this.together(
        tx,
        () => this.move(tx, state, reason, ofEffect, newFence),
        () => this.lifecycle.load(tx, this.claim.id),
      );
    });
    return this.done(how, going);
  }

  private async restIn(state: string, reason: string | null, effect: Effect | undefined): Promise<Stepped> {
    const target = this.stateNamed(state);
    const againMs = await this.transaction(async (tx) => {
      const ofEffect = await effect?.(tx);
      const change = { from: this.claim.state, to: state, reason: null };
      const written = () => writeRest(tx, this.claim, { state, deadlineMs: target.deadline, reason });
      const { next } = await this.together(tx, () => this.both(tx, change, ofEffect, written));
      return next;
    });
    return this.done('go', { next: null, againMs });
  }

  private stateNamed(state: string): StateDefinition {
    const target = this.states.get(state);
    if (target === undefined) throw new TypeError(`${this.lifecycle.kind} has no state "${state}"`);
    return target;
  }

  private async goWithin(choose: (tx: Sql) => Promise<Outcome>): Promise<Stepped> {
    let how: 'go' | 'fail' = 'go';
    const going = await this.transaction(async (tx) => {
      const chosen = await choose(tx);
      if ((chosen.kind !== 'go' && chosen.kind !== 'fail') || chosen.state === undefined)
        throw new TypeError(
          `${this.lifecycle.kind}.${this.claim.state} may only go or fail to a state within`,
        );
      how = chosen.kind;
      const reason = chosen.kind === 'fail' ? chosen.reason : null;
      const ofEffect = await chosen.effect?.(tx);
      const { state } = chosen;
      // What it has locked others may wait for: the thing is read after the commit.
      return this.together(tx, () => this.move(tx, state, reason, ofEffect, false));
    });
    return this.done(how, going);
  }

  /** Writes the next state. */
  private move(
    tx: Sql,
    state: string,
    reason: string | null,
    ofEffect: unknown,
    newFence: boolean,
  ): Promise<Claim> {
    const target = this.stateNamed(state);
    const { leaseMs } = this.parts;
    const next = { state, deadlineMs: target.deadline, reason, leaseMs, newFence };
    const change = { from: this.claim.state, to: state, reason };
    return this.both(tx, change, ofEffect, () => writeGo(tx, this.claim, next));
  }

  /** Tells the thing of its change, and writes that of its life: last, see `transaction`. */
  private async both<T>(tx: Sql, change: Change, ofEffect: unknown, write: () => Promise<T>): Promise<T> {
    const told = this.lifecycle.changed(tx, this.claim.id, change, ofEffect);
    if (this.lifecycle.saysAtOnce) return (await Promise.all([told, write()]))[1];
    await told;
    return write();
  }

  /** Writes, reads what came of it, and ends the transaction: in one round trip where the kind allows it. */
  private async together<T>(
    tx: Ending,
    write: () => Promise<T>,
    load: () => Promise<unknown> = () => Promise.resolve(),
  ): Promise<{ next: T; subject: unknown }> {
    if (this.lifecycle.saysAtOnce) {
      const [next, subject] = await Promise.all([write(), load(), tx.commit()]);
      return { next, subject };
    }
    const next = await write();
    return { next, subject: await load() };
  }

  private async endWith(effect: Effect | undefined | null, reason: string | null): Promise<Stepped> {
    await this.transaction(async (tx) => {
      const ofEffect = await effect?.(tx);
      const change = { from: this.claim.state, to: null, reason };
      const written = () => writeEnd(tx, this.claim, reason);
      await this.together(tx, () => this.both(tx, change, ofEffect, written));
    });
    return this.done('end', { next: null, againMs: Infinity });
  }

  /** One statement on the life's row alone needs no transaction around it. */
  private wait(next: Parameters<typeof writeWait>[2]): Promise<number> {
    return this.write(() => writeWait(this.parts.db, this.claim, next));
  }

  /**
   * One transaction; the guarded write of the lifecycle's row comes last. An API call changes the thing's row first and
   * wakes it then: taking the locks in the same order keeps the two from deadlock. Should one happen with other rows, the
   * transaction runs again.
   */
  private transaction<T>(work: (tx: Ending) => Promise<T>): Promise<T> {
    return this.write(() => this.parts.db.transaction(work));
  }

  private async write<T>(work: () => Promise<T>): Promise<T> {
    this.held.writing = true;
    try {
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await work();
        } catch (error) {
          const { code } = error as { code?: string };
          // Whoever shared the round trip may be the one who hears of it.
          if (attempt === 4 || (code !== '40P01' && code !== '40001')) throw lostIn(error, this.claim);
          await delay(10 * attempt * Math.random());
        }
      }
    } finally {
      this.held.writing = false;
    }
  }

  private done<T>(how: 'go' | 'wait' | 'fail' | 'end' | 'missed' | 'retry', next: T): T {
    this.parts.observer.stepped?.(this.claim, how, performance.now() - this.startedAt);
    return next;
  }
}

/** A delay that never resolves once it is cancelled, for the losing side of a race. */
class LongTimer {
  private timer: NodeJS.Timeout | undefined;
  private isOver = false;

  after(ms: number): Promise<void> {
    const end = performance.now() + ms;
    return new Promise((resolve) => {
      const next = () => {
        const left = end - performance.now();
        if (left <= 0) resolve();
        // Timers hold at most 2^31 - 1 ms; longer deadlines are slept in pieces.
        else if (!this.isOver) this.timer = setTimeout(next, Math.min(left, 2 ** 31 - 1));
      };
      next();
    });
  }

  cancel(): void {
    this.isOver = true;
    clearTimeout(this.timer);
  }
}
