import type { Nano, SliceCaller, SliceInfo, SliceTakeRequest } from '@nebo/contracts';
import { ApiError, billingUnavailable, unauthorized } from '@nebo/service-kit';
import type { Cancel } from '../completions/cancel.js';
import type { Billing } from './billing.js';
import { CallGate } from './call-gate.js';
import type { Clock } from './clock.js';
import { Demand } from './demand.js';
import type { MoneyMetrics } from './money-metrics.js';
import { MoneyRefused, refusalCode, refusalFigures } from './refusals.js';
import type { Slice } from './slice.js';
import { SliceSet } from './slice-set.js';
import { judge, type Wish } from './verdicts.js';

/** What all purses of a router share. */
export interface PurseGround {
  billing: Pick<Billing, 'take' | 'renew' | 'giveBack'>;
  clock: Clock;
  metrics: Pick<MoneyMetrics, 'take'>;
  caller(): SliceCaller;
}

/** The worst case of one request, taken out of what is free in its slices. */
export interface Hold {
  readonly purse: Purse;
  readonly slice: Slice;
  /** Set for keys with a monthly limit. */
  readonly keySlice: Slice | null;
  readonly amount: Nano;
  /** Calendar month (UTC) of the admission. */
  readonly month: string;
  /** Released, or settled. */
  ended: boolean;
}

interface Waiter extends Wish {
  resolve(hold: Hold): void;
  reject(error: Error): void;
  rounds: number;
}

/** How long nothing is asked for in advance after a refusal. Milliseconds. */
const topUpPause = 5_000;
/** Calls for others in a row, after which one that waits for what others give back has its turn. */
const mostAhead = 4;
/** Calls for one waiter, after which something is wrong. */
const mostRounds = 12;

const above = (amount: Nano): Nano => (amount > 0n ? amount : 0n);
const larger = (a: Nano, b: Nano): Nano => (a > b ? a : b);
const sumOf = (waiters: readonly Waiter[]): Nano => waiters.reduce((sum, { amount }) => sum + amount, 0n);

/**
 * The money of one account that this router may use without asking: its slice, and one more for each key with a monthly
 * limit. A hold is made in memory, at once where there is enough; otherwise it waits in order for one call that asks for
 * all that wait. What is settled stays in the slice until identity-billing has acknowledged it, so slices never promise
 * the same money twice.
 */
export class Purse extends SliceSet {
  readonly gate = new CallGate();
  readonly demand: Demand;
  lastUse: number;
  private waiters: Waiter[] = [];
  private isFilling = false;
  private isToppingUp = false;
  /** The next call asks for the first waiter alone. */
  private single = false;
  private noTopUpBefore = 0;
  private ahead = 0;
  private newest: Hold | undefined;
  /** Calls for more whose answers were lost: keys with a limit, or null. Perhaps there is a slice that nobody knows here. */
  private readonly unsure = new Set<string | null>();

  constructor(
    readonly accountId: string,
    private readonly ground: PurseGround,
  ) {
    super(ground.clock);
    this.lastUse = ground.clock.now();
    this.demand = new Demand(this.lastUse);
  }

  get isWaitedFor(): boolean {
    return this.waiters.length > 0;
  }

  /** May identity-billing have granted something that is unknown here? */
  get isUnsure(): boolean {
    return this.unsure.size > 0;
  }

  /** What is being asked for may come after those that waited for it have left. */
  get isEmpty(): boolean {
    const isAsking = this.isFilling || this.isToppingUp;
    return this.hasNone && !this.isWaitedFor && !isAsking && this.unsure.size === 0;
  }

  /**
   * Holds an amount: at once where the slices cover it, else when identity-billing has granted more.
   * @param key a key with a monthly limit, or null
   * @param gone drops the request from the queue
   * @throws MoneyRefused, ApiError 503 `billing_unavailable`, 401 for an account or key that is gone
   */
  hold(amount: Nano, key: string | null, gone?: Cancel): Hold | Promise<Hold> {
    const now = this.ground.clock.now();
    this.lastUse = now;
    if (this.waiters.length === 0 && this.covers(amount, key, now)) {
      const hold = this.make(amount, key);
      this.topUpIfLow(hold, now);
      return hold;
    }
    return this.wait(amount, key, gone);
  }

  /** Ends a hold without a charge. */
  release(hold: Hold): void {
    if (this.end(hold)) this.serve();
  }

  /** Ends a hold with a charge of at most its amount, which stays in the slice until `acknowledge`. */
  owe(hold: Hold, cost: Nano): void {
    if (!this.end(hold)) return;
    hold.slice.owed += cost;
    if (hold.keySlice) hold.keySlice.owed += cost;
    this.demand.settled(cost);
    this.serve();
  }

  /** identity-billing has charged a settlement (it has taken the money out of the slice), or never will. */
  acknowledge(hold: Hold, cost: Nano, isCharged: boolean): void {
    for (const slice of hold.keySlice ? [hold.slice, hold.keySlice] : [hold.slice]) {
      slice.owed -= cost;
      if (isCharged) slice.amount -= cost;
    }
    if (!isCharged) this.serve();
  }

  /** Takes what a `renew` or `return` answered; a slice that it leaves out is closed. */
  override update(asked: readonly Slice[], answered: ReadonlyMap<string, SliceInfo>, askedAt: number): void {
    super.update(asked, answered, askedAt);
    this.serve();
  }

  /** Asks about slices whose grant may have been lost on its way here; otherwise nobody would ever give them back. */
  async clarify(): Promise<void> {
    for (const key of [...this.unsure])
      await this.inTurn(() => this.take(0n, key === null ? null : { id: key, need: 0n }, null));
  }

  /** Refuses all that wait; for the end of the process. */
  refuseAll(error: Error): void {
    for (const waiter of this.waiters.splice(0)) waiter.reject(error);
  }

  private make(amount: Nano, key: string | null): Hold {
    const slice = this.account!;
    const keySlice = key === null ? null : this.keys.get(key)!;
    slice.held += amount;
    if (keySlice) keySlice.held += amount;
    this.demand.held(slice.held);
    const month = keySlice?.month ?? this.ground.clock.month();
    this.newest = { purse: this, slice, keySlice, amount, month, ended: false };
    return this.newest;
  }

  private end(hold: Hold): boolean {
    if (hold.ended) return false;
    hold.ended = true;
    hold.slice.held -= hold.amount;
    if (hold.keySlice) hold.keySlice.held -= hold.amount;
    this.lastUse = this.ground.clock.now();
    return true;
  }

  private wait(amount: Nano, key: string | null, gone?: Cancel): Promise<Hold> {
    return new Promise<Hold>((resolve, reject) => {
      const waiter: Waiter = { amount, key, resolve, reject, recalled: false, rounds: 0 };
      const leave = () => {
        this.reject(waiter, billingUnavailable(new Error('the client left while its request waited')));
        this.serve();
      };
      if (gone?.reason) return reject(billingUnavailable(new Error('the client left')));
      if (gone) {
        const off = gone.onCancel(leave);
        waiter.resolve = (hold) => (off(), resolve(hold));
        waiter.reject = (error) => (off(), reject(error));
      }
      this.waiters.push(waiter);
      // Those before it may wait for others, not for what is here.
      this.serve();
      void this.fill();
    });
  }

  /** Gives holds to those that wait, in order; who waits only for its key, or for others, holds nobody else up. */
  private serve(): void {
    if (this.waiters.length === 0) return;
    const now = this.ground.clock.now();
    let isShort = false;
    const shortKeys = new Set<string>();
    this.waiters = this.waiters.filter((waiter) => {
      const { amount, key } = waiter;
      const isNext = !isShort && (key === null || !shortKeys.has(key));
      if (isNext && this.covers(amount, key, now)) {
        waiter.resolve(this.make(amount, key));
        return false;
      }
      if (isNext && !waiter.recalled) {
        if (key !== null && this.account?.covers(amount, now)) shortKeys.add(key);
        else isShort = true;
      }
      return true;
    });
  }

  /** Asks until nobody waits any more. */
  private async fill(): Promise<void> {
    if (this.isFilling) return;
    this.isFilling = true;
    try {
      while (this.waiters.length > 0) await this.inTurn(() => this.ask());
    } catch (error) {
      this.refuseAll(billingUnavailable(error));
    } finally {
      this.isFilling = false;
    }
    if (this.newest && !this.newest.ended) this.topUpIfLow(this.newest, this.ground.clock.now());
  }

  private async inTurn(call: () => Promise<void>): Promise<void> {
    await this.gate.enter();
    try {
      await call();
    } finally {
      this.gate.leave();
    }
  }

  /** One call for those that wait: renews what has lapsed, or takes what is missing. */
  private async ask(): Promise<void> {
    this.serve();
    const now = this.ground.clock.now();
    const isTurn = this.ahead >= mostAhead;
    const first = this.waiters.find((waiter) => waiter.recalled === isTurn) ?? this.waiters[0];
    if (!first) return;
    this.ahead = first.recalled ? 0 : this.ahead + 1;
    if ((first.rounds += 1) > mostRounds) {
      const cause = new Error('identity-billing grants, but never what is needed');
      return this.reject(first, billingUnavailable(cause));
    }
    const { account } = this;
    const keySlice = first.key === null ? null : this.keySlice(first.key, now);
    const lapsed = [account, keySlice].filter((slice) => slice !== null && !slice.isValid(now)) as Slice[];
    if (lapsed.length > 0) return this.renew(lapsed);
    const alike = this.waiters.filter(
      ({ key, recalled }) => recalled === first.recalled && (key === null || key === first.key),
    );
    // Who waits for what others give back asks alone: identity-billing recalls what covers a need, not part of it.
    const group = this.single || first.recalled ? [first] : alike;
    try {
      await this.take(
        above(sumOf(group) - (account?.free ?? 0n)),
        first.key === null
          ? null
          : {
              id: first.key,
              need: above(sumOf(group.filter(({ key }) => key !== null)) - (keySlice?.free ?? 0n)),
            },
      );
      this.single = false;
      if (first.key !== null && !this.keys.has(first.key)) for (const waiter of group) waiter.key = null; // Its limit was taken away meanwhile.
      this.serve();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 402) this.refused(error, first.recalled ? alike : group, keySlice);
      else if (error.status === 404) {
        // It says nothing of the others that wait: they are asked for again, without that key.
        const its = group.filter(({ key }) => key === first.key);
        for (const waiter of its) this.reject(waiter, unauthorized());
      } else throw error;
    }
  }

  private async renew(slices: Slice[]): Promise<void> {
    const askedAt = this.ground.clock.now();
    const answer = await this.ground.billing.renew({
      ...this.ground.caller(),
      slices: slices.map((slice) => ({ id: slice.id, in_use: slice.inUse.toString() })),
    });
    this.renewed(slices, new Map(answer.slices.map((info) => [info.id, info])), askedAt);
  }

  /** @param wish what would be welcome beyond the need, even where nobody has used so much yet; null: not even that */
  private async take(
    need: Nano,
    key: { id: string; need: Nano } | null,
    wish: Nano | null = 0n,
  ): Promise<void> {
    const { billing, clock, metrics } = this.ground;
    const askedAt = clock.now();
    const { target } = this.demand;
    // Twice what is missing: a caller that becomes busier soon has enough.
    const want = (missing: Nano, slice: Slice | null | undefined) =>
      wish === null
        ? missing.toString()
        : larger(wish + 2n * missing, above(target - (slice ? slice.amount - slice.owed : 0n))).toString();
    const request: SliceTakeRequest = {
      ...this.ground.caller(),
      account_id: this.accountId,
      need: need.toString(),
      want: want(need, this.account),
      ...(key
        ? { key: { key_id: key.id, need: key.need.toString(), want: want(key.need, this.keys.get(key.id)) } }
        : {}),
    };
    try {
      const answer = await billing.take(request);
      metrics.take('granted');
      this.unsure.delete(null);
      if (key) this.unsure.delete(key.id);
      this.account = this.adopt(this.account, answer.account, askedAt, null);
      if (key) {
        const known = this.keys.get(key.id) ?? null;
        if (answer.key) this.keys.set(key.id, this.adopt(known, answer.key, askedAt, key.id));
        else if (known) this.drop(known);
      }
    } catch (error) {
      metrics.take(error instanceof ApiError ? error.code : 'failed');
      const isLost = !(error instanceof ApiError) || error.status >= 500;
      if (isLost) this.unsure.add(key?.id ?? null);
      // Who is refused nothing at all has nothing; of a key that is gone the account's part may be there.
      else if (wish === null && this.unsure.delete(key?.id ?? null) && key) this.unsure.add(null);
      throw error;
    }
  }

  /**
   * A coalesced 402 says nothing about each of its requests. By its figures those that fit are asked for again without the
   * others; who does not fit asks once more, alone, where what others give back could help, and is refused then.
   */
  private refused(error: ApiError, group: readonly Waiter[], keySlice: Slice | null): void {
    const code = refusalCode(error);
    const figures = refusalFigures(error);
    if (code === 'topup_required') return group.forEach((waiter) => this.refuse(waiter, code, null));
    if (!figures) return this.trySingly(group, code, null);
    const budget = (this.account?.free ?? 0n) + figures.available;
    const verdicts = judge(group, {
      code,
      budget,
      keyBudget: figures.keyAvailable === null ? null : (keySlice?.free ?? 0n) + figures.keyAvailable,
      held: this.account?.held ?? 0n,
      keyHeld: keySlice?.held ?? 0n,
      heldElsewhere: figures.held,
    });
    if (verdicts.length === 0) return this.trySingly(group, code, budget);
    this.single = false;
    for (const verdict of verdicts) {
      const { wish } = verdict;
      if (verdict.wait) wish.recalled = true;
      else this.refuse(wish, verdict.code, verdict.coverable);
    }
  }

  /** The figures do not explain the refusal (others took or gave meanwhile): one by one, the first first. */
  private trySingly(group: readonly Waiter[], code: MoneyRefused['code'], coverable: Nano | null): void {
    const [first] = group;
    if (!first) return;
    if (this.single || group.length === 1) {
      this.single = false;
      if (coverable === null || first.rounds > 2) this.refuse(first, code, coverable);
    } else this.single = true;
  }

  private refuse(waiter: Waiter, code: MoneyRefused['code'], coverable: Nano | null): void {
    this.noTopUpBefore = this.ground.clock.now() + topUpPause;
    this.reject(waiter, new MoneyRefused(code, coverable));
  }

  private reject(waiter: Waiter, error: Error): void {
    this.waiters = this.waiters.filter((other) => other !== waiter);
    waiter.reject(error);
  }

  /** Asks in the background before the next request like this one would have to wait. */
  private topUpIfLow({ amount, slice, keySlice }: Hold, now: number): void {
    if (this.isToppingUp || this.isFilling || now < this.noTopUpBefore) return;
    const enough = larger(amount, this.demand.consumption / 4n);
    const isKeyLow = keySlice !== null && keySlice.free < amount;
    if (slice.free >= enough && !isKeyLow) return;
    this.isToppingUp = true;
    const need = slice.free >= enough ? 0n : larger(1n, enough - slice.free);
    const key = isKeyLow ? { id: keySlice.keyId!, need: amount } : null;
    this.inTurn(() => this.take(need, key, amount))
      .then(
        () => this.serve(),
        () => (this.noTopUpBefore = this.ground.clock.now() + topUpPause),
      )
      .finally(() => (this.isToppingUp = false));
  }
}
