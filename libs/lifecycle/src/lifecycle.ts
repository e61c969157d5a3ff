import { type Sql } from '@nebo/persistence';

/**
 * A change of rows that happens in the transaction of the state change: both or none. It may run again after a deadlock. What
 * it answers is handed to `changed`, which can write both in one statement.
 */
export type Effect = (tx: Sql) => Promise<unknown>;

/** How a state method ended. Made by `go`, `rest`, `wait`, `fail`, `end` and `within` only. */
export type Outcome =
  | { readonly kind: 'go'; readonly state: string; readonly effect: Effect | undefined }
  | { readonly kind: 'wait'; readonly ms: number; readonly reason: string | undefined }
  | {
      readonly kind: 'fail';
      readonly reason: string;
      readonly state: string | undefined;
      readonly effect: Effect | undefined;
    }
  | { readonly kind: 'end'; readonly effect: Effect | undefined }
  | {
      readonly kind: 'rest';
      readonly state: string;
      readonly reason: string | undefined;
      readonly effect: Effect | undefined;
    }
  | { readonly kind: 'within'; readonly choose: (tx: Sql) => Promise<Outcome> };

/** What a state method is told besides its subject. */
export interface StepContext {
  readonly id: string;
  /** Aborted when the lease is lost, the deadline has passed or the worker stops: end soon, the write may be refused. */
  readonly signal: AbortSignal;
  /** Aborted when somebody wakes this thing while the step runs: a long step may stop to look at what is wanted now. */
  readonly woken: AbortSignal;
  /** 1 on the first try since the state was entered or last waited. */
  readonly attempt: number;
  /** When the state was entered, by PostgreSQL's clock. */
  readonly enteredAt: Date;
  /** Why it is here or why the last try failed; null when all went well. */
  readonly reason: string | null;
}

/** A change of state, told to `changed` in its transaction. */
export interface Change {
  readonly from: string;
  /** null when the life ended. */
  readonly to: string | null;
  /** Why, when it failed or missed its deadline. */
  readonly reason: string | null;
}

export interface StateOptions {
  /** Milliseconds from entering the state until it counts as missed. */
  deadline?: number;
  /** Where a missed deadline leads; `error` when that state exists and none is named. */
  onMissed?: string;
}

type StateMethod = (subject: never, context: StepContext) => Promise<Outcome> | Outcome;

/** A state as its decorator and its class declare it. */
export interface StateDefinition {
  readonly name: string;
  readonly deadline: number | null;
  readonly onMissed: string | null;
}

/** Own property of a prototype that carries the states declared in that class. */
const declared = Symbol('nebo.lifecycle.states');
type Declaring = { [declared]?: Map<string, StateOptions> };

/**
 * Makes a method a state of its name. The method looks at its subject, does one step that may safely be done again, and
 * ends by going on, waiting, failing or ending.
 */
export function State(options: StateOptions = {}) {
  return <M extends StateMethod>(
    prototype: object,
    name: string,
    _method: TypedPropertyDescriptor<M>,
  ): void => {
    const owner = prototype as Declaring;
    if (!Object.hasOwn(prototype, declared)) owner[declared] = new Map();
    owner[declared]!.set(name, options);
  };
}

/**
 * The life of one kind of thing: a class with one method per state, readable from top to bottom. An instance is shared by
 * all things of the kind and keeps no state of its own.
 */
export abstract class Lifecycle<Subject> {
  /** The kind, as in the table: `vm`, `build`. */
  abstract readonly kind: string;

  /** The thing itself, read afresh before each step; null when it is gone, which ends its life. */
  abstract load(tx: Sql, id: string): Promise<Subject | null>;

  /**
   * `changed` and `load` say all that they say of their own at once, without waiting for an answer in between: then they share
   * one round trip with the write of the state and its commit.
   */
  readonly saysAtOnce: boolean = false;

  /**
   * Runs in the transaction of every change of state, however it came about; the place to show state and reason in the
   * thing's own row.
   * @param _ofEffect what the outcome's effect answered
   */
  changed(_tx: Sql, _id: string, _change: Change, _ofEffect?: unknown): Promise<void> {
    return Promise.resolve();
  }

  /** Goes on to another state at once. */
  protected go(state: keyof this & string, effect?: Effect): Outcome {
    return { kind: 'go', state, effect };
  }

  /**
   * Goes on to a state which would only wait to be woken, without looking: one write instead of three. A wake that came in
   * since this step's subject was read has the new state look at once.
   * @param reason what it waits for, as with `wait`
   */
  protected rest(state: keyof this & string, effect?: Effect, reason?: string): Outcome {
    return { kind: 'rest', state, reason, effect };
  }

  /**
   * Stays in this state and is asked again after `ms`, or earlier when woken; without `ms` only when woken.
   * @param reason what it waits for; shown when the deadline is missed
   */
  protected wait(ms: number = Infinity, reason?: string): Outcome {
    return { kind: 'wait', ms, reason };
  }

  /**
   * Gives up in this state and says why, in words that the owner of the thing may read. Goes to `state`, or to this
   * state's `onMissed`, or to `error`; where none of them exists the life ends with the reason.
   */
  protected fail(reason: string, state?: keyof this & string, effect?: Effect): Outcome {
    return { kind: 'fail', reason, state, effect };
  }

  /**
   * Chooses between `go` and `fail` to a named state in the transaction that then writes it: for what must be locked, looked
   * at and taken at once. It may run again after a deadlock.
   */
  protected within(choose: (tx: Sql) => Promise<Outcome>): Outcome {
    return { kind: 'within', choose };
  }

  /** Ends the life: no step will follow. */
  protected end(effect?: Effect): Outcome {
    return { kind: 'end', effect };
  }
}

/**
 * The states of a lifecycle, base classes included.
 * @throws TypeError when a deadline leads nowhere or to itself
 */
export function statesOf(lifecycle: Lifecycle<unknown>): ReadonlyMap<string, StateDefinition> {
  const options = new Map<string, StateOptions>();
  for (
    let at: object | null = Object.getPrototypeOf(lifecycle);
    at !== null;
    at = Object.getPrototypeOf(at)
  ) {
    const own = Object.hasOwn(at, declared) ? (at as Declaring)[declared]! : new Map<string, StateOptions>();
    for (const [name, option] of own) if (!options.has(name)) options.set(name, option);
  }
  const states = new Map<string, StateDefinition>();
  for (const [name, { deadline, onMissed }] of options) {
    const target = onMissed ?? (options.has('error') && name !== 'error' ? 'error' : null);
    if (onMissed !== undefined && (!options.has(onMissed) || onMissed === name)) {
      throw new TypeError(`${lifecycle.kind}.${name}: onMissed "${onMissed}" is not another state`);
    }
    if (deadline !== undefined && target === null) {
      throw new TypeError(`${lifecycle.kind}.${name} has a deadline but no state to go to when it is missed`);
    }
    states.set(name, { name, deadline: deadline ?? null, onMissed: target });
  }
  if (states.size === 0) throw new TypeError(`${lifecycle.kind} has no states`);
  return states;
}

/** Runs one state method. @throws TypeError for a state without method or an answer that is no outcome */
export async function runState(
  lifecycle: Lifecycle<unknown>,
  state: string,
  subject: unknown,
  context: StepContext,
): Promise<Outcome> {
  const method = (
    lifecycle as unknown as Record<string, (subject: unknown, context: StepContext) => unknown>
  )[state];
  if (typeof method !== 'function') throw new TypeError(`${lifecycle.kind} has no state "${state}"`);
  const outcome = (await method.call(lifecycle, subject, context)) as Outcome | undefined;
  if (outcome === undefined || !['go', 'rest', 'wait', 'fail', 'end', 'within'].includes(outcome.kind)) {
    throw new TypeError(
      `${lifecycle.kind}.${state} ended without an outcome: go, rest, wait, fail, end or within`,
    );
  }
  return outcome;
}
