import { Inject, Injectable } from '@nestjs/common';
import type { Nano, SliceCaller, SliceInfo, SliceRecall } from '@nebo/contracts';
import { ApiError, billingUnavailable, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Cancel } from '../completions/cancel.js';
import { Billing } from './billing.js';
import { Clock } from './clock.js';
import { MoneyMetrics } from './money-metrics.js';
import { type Hold, Purse } from './purse.js';
import type { Slice } from './slice.js';

/** How often terms, idle purses and demand are looked at. Milliseconds. */
const beat = 1_000;
/** A purse that nothing used for so long is given back whole. Milliseconds. */
const idleAfter = 30_000;
/** Slices in one call. */
const mostSlices = 500;

/** A part of a slice that is given back. */
interface Part {
  slice: Slice;
  amount: Nano;
}

/** The purses of this router: who holds, who renews, who gives back. */
@Injectable()
export class Purses {
  private readonly byAccount = new Map<string, Purse>();
  private caller: SliceCaller | null = null;
  private timer: NodeJS.Timeout | undefined;
  private isBeating = false;
  private fenced = false;
  private running = 0;
  private readonly ground;

  constructor(
    private readonly billing: Billing,
    private readonly clock: Clock,
    private readonly metrics: MoneyMetrics,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log'>,
  ) {
    this.ground = {
      billing: {
        take: this.guarded(billing.take.bind(billing)),
        renew: this.guarded(billing.renew.bind(billing)),
        giveBack: this.guarded(billing.giveBack.bind(billing)),
      },
      clock,
      metrics,
      caller: () => this.mustBeOpen(),
    };
  }

  /** Holds whose requests run. */
  get holds(): number {
    return this.running;
  }

  /** Another process lives as this router: nothing may be held any more. */
  get isFenced(): boolean {
    return this.fenced;
  }

  get isOpen(): boolean {
    return this.caller !== null && !this.fenced;
  }

  /** From now on this life of the router has its epoch, and slices may be taken. */
  open(caller: SliceCaller): void {
    this.caller = caller;
    this.timer ??= setInterval(() => void this.tick(), beat).unref();
  }

  /**
   * Holds the worst case of a request.
   * @param key a key with a monthly limit, or null
   * @throws as `Purse.hold`
   */
  hold(account: string, amount: Nano, key: string | null, gone?: Cancel): Hold | Promise<Hold> {
    if (!this.isOpen) throw billingUnavailable(new Error('this router is not open'));
    let purse = this.byAccount.get(account);
    if (!purse) this.byAccount.set(account, (purse = new Purse(account, this.ground)));
    const hold = purse.hold(amount, key, gone);
    if (!(hold instanceof Promise)) {
      this.running += 1;
      return hold;
    }
    return hold.then((made) => {
      this.running += 1;
      return made;
    });
  }

  /** Ends a hold, with what is charged of it (0n: nothing). */
  end(hold: Hold, cost: Nano): void {
    if (hold.ended) return;
    this.running -= 1;
    if (cost > 0n) hold.purse.owe(hold, cost);
    else hold.purse.release(hold);
  }

  /** Somebody else needs the money of an account: everything idle goes back at once. */
  async recall({ account_id, key_id, except_router_id }: SliceRecall): Promise<void> {
    const purse = this.byAccount.get(account_id);
    if (!purse || !this.isOpen || except_router_id === this.caller?.router_id) return;
    await this.giveBack([purse], () => {
      const slice = key_id === null ? purse.account : purse.keySlice(key_id, this.clock.now());
      return purse.isWaitedFor || !slice ? [] : [{ slice, amount: slice.free }];
    });
  }

  /** One look at everything that time changes; called by the timer, and by tests. */
  async tick(): Promise<void> {
    if (this.isBeating || !this.isOpen) return;
    this.isBeating = true;
    try {
      const now = this.clock.now();
      for (const purse of this.byAccount.values()) purse.demand.tick(now, purse.account?.held ?? 0n);
      await this.renewDue(now);
      for (const purse of this.byAccount.values())
        if (purse.isUnsure && !purse.isWaitedFor) await purse.clarify();
      await this.giveBack([...this.byAccount.values()], (purse) => this.excess(purse, now));
      for (const [account, purse] of this.byAccount) if (purse.isEmpty) this.byAccount.delete(account);
    } catch (err) {
      this.runtime.log.warn({ err }, 'slices could not be renewed or given back');
    } finally {
      this.isBeating = false;
    }
  }

  /** Gives all back that is not in use, for good: nothing is held afterwards. */
  async close(): Promise<void> {
    clearInterval(this.timer);
    const purses = [...this.byAccount.values()];
    for (const purse of purses)
      purse.refuseAll(billingUnavailable(new Error('the service is being stopped')));
    if (!this.isOpen) return;
    try {
      // What is being granted at this moment goes back as well.
      for (const { gate } of purses) {
        await gate.enter();
        gate.leave();
      }
      // An answer may show that there is more than was known here: then once more.
      for (let round = 0; round < 3 && purses.some((purse) => !purse.isEmpty); round += 1) {
        for (const purse of purses) if (purse.isUnsure) await purse.clarify();
        await this.renewDue(this.clock.now());
        await this.giveBack(purses, everything);
      }
    } finally {
      this.caller = null;
    }
  }

  /** Money in the slices of an account, or of all. */
  sums(account?: string): { free: Nano; held: Nano; owed: Nano } {
    const sums = { free: 0n, held: 0n, owed: 0n };
    for (const purse of this.byAccount.values()) {
      if (account !== undefined && purse.accountId !== account) continue;
      for (const slice of purse.slices()) {
        // What a key's limit holds is money of the account, counted there.
        if (slice.keyId !== null) continue;
        sums.free += slice.free;
        sums.held += slice.held;
        sums.owed += slice.owed;
      }
    }
    return sums;
  }

  private async renewDue(now: number): Promise<void> {
    const due = [...this.byAccount.values()].flatMap((purse) =>
      purse
        .slices()
        .filter((slice) => slice.isRenewalDue(now))
        .map((slice) => ({ purse, slice })),
    );
    for (const some of inParts(due)) {
      const purses = new Set(some.map(({ purse }) => purse));
      await Promise.all([...purses].map(({ gate }) => gate.enter()));
      try {
        const askedAt = this.clock.now();
        const answer = await this.ground.billing.renew({
          ...this.mustBeOpen(),
          slices: some.map(({ slice }) => ({ id: slice.id, in_use: slice.inUse.toString() })),
        });
        const infos = byId(answer.slices);
        const slices = Map.groupBy(some, ({ purse }) => purse);
        for (const [purse, its] of slices)
          purse.renewed(
            its.map(({ slice }) => slice),
            infos,
            askedAt,
          );
      } finally {
        for (const { gate } of purses) gate.leave();
      }
    }
  }

  /** What a purse has and does not need: all of it when idle, else what is far above its demand. */
  private excess(purse: Purse, now: number): Part[] {
    if (purse.isWaitedFor) return [];
    if (now - purse.lastUse >= idleAfter) return everything(purse);
    const { account, demand } = purse;
    const parts = purse.former
      .filter(({ inUse }) => inUse === 0n)
      .map((slice) => ({ slice, amount: slice.amount }));
    if (account && demand.target > 0n && account.free > 4n * demand.target)
      parts.push({ slice: account, amount: account.free - 2n * demand.target });
    return parts;
  }

  private async giveBack(purses: readonly Purse[], partsOf: (purse: Purse) => Part[]): Promise<void> {
    for (const places of inParts(purses.flatMap((purse) => partsOf(purse).map(() => purse)))) {
      // A purse with more slices than one call takes comes again.
      const rooms = Map.groupBy(places, (purse) => purse);
      const some = [...rooms.keys()];
      await Promise.all(some.map(({ gate }) => gate.enter()));
      try {
        // Looked at again: a request may have taken it while this waited.
        const given = [...rooms].map(([purse, { length: room }]) => ({
          purse,
          parts: partsOf(purse)
            .filter(({ amount }) => amount >= 0n)
            .slice(0, room),
        }));
        const parts = given.flatMap(({ parts }) => parts);
        if (parts.length === 0) continue;
        // Gone before it is told: whether or not the answer comes, nobody holds from it any more.
        for (const { slice, amount } of parts) slice.amount -= amount;
        const askedAt = this.clock.now();
        const answer = await this.ground.billing.giveBack({
          ...this.mustBeOpen(),
          slices: parts.map(({ slice: { id, version }, amount }) => ({
            id,
            version,
            amount: amount.toString(),
          })),
        });
        const infos = byId(answer.slices);
        for (const { purse, parts } of given)
          purse.update(
            parts.map(({ slice }) => slice),
            infos,
            askedAt,
          );
      } catch (error) {
        // Whether it was taken back only identity-billing knows.
        for (const purse of some) for (const slice of purse.slices()) slice.askAgain();
        throw error;
      } finally {
        for (const { gate } of some) gate.leave();
      }
    }
  }

  private mustBeOpen(): SliceCaller {
    if (!this.caller || this.fenced) throw billingUnavailable(new Error('this router is not open'));
    return this.caller;
  }

  private guarded<Q, A>(call: (request: Q) => Promise<A>): (request: Q) => Promise<A> {
    return async (request) => {
      try {
        return await call(request);
      } catch (error) {
        if (error instanceof ApiError && error.status === 409 && error.code === 'fenced') this.fence();
        throw error;
      }
    };
  }

  private fence(): void {
    if (this.fenced) return;
    this.fenced = true;
    this.runtime.log.fatal(
      'another process has begun as this router: nothing is admitted here any more, end this one',
    );
  }
}

const everything = (purse: Purse): Part[] =>
  purse
    .slices()
    // What is in use stays; what is empty and not in use is forgotten.
    .filter(({ free, inUse }) => free > 0n || inUse === 0n)
    .map((slice) => ({ slice, amount: slice.free }));

const byId = (infos: readonly SliceInfo[]): Map<string, SliceInfo> =>
  new Map(infos.map((info) => [info.id, info]));

function* inParts<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < all.length; at += mostSlices) yield all.slice(at, at + mostSlices);
}
