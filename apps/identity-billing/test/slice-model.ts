import type { Outcome } from './money-model.js';

interface Part {
  amount: bigint;
  inUse: bigint;
}

const least = (...amounts: bigint[]) => amounts.reduce((a, b) => (b < a ? b : a));
const most = (a: bigint, b: bigint) => (a > b ? a : b);

/** One account, one key with a monthly limit and some routers, as the rules of slices say, in memory. */
export class SliceModel {
  held = 0n;
  keyUsed = 0n;
  lost = 0n;
  readonly orders = new Map<string, bigint>();
  readonly settled = new Set<string>();
  readonly money: (Part | undefined)[];
  readonly limits: (Part | undefined)[];

  constructor(
    public posted: bigint,
    private readonly keyLimit: bigint,
    routers: number,
  ) {
    this.money = Array.from({ length: routers });
    this.limits = Array.from({ length: routers });
  }

  private sum(
    parts: readonly (Part | undefined)[],
    of: (part: Part) => bigint = (part) => part.amount,
  ): bigint {
    return parts.reduce((total, part) => total + (part ? of(part) : 0n), 0n);
  }

  get leased(): bigint {
    return this.sum(this.money);
  }

  get keyLeased(): bigint {
    return this.sum(this.limits);
  }

  get free(): bigint {
    return this.posted - this.held - this.leased;
  }

  take(router: number, need: bigint, want: bigint, key: boolean): Outcome {
    const own = (part: Part | undefined) => part?.amount ?? 0n;
    if (need > this.free)
      return this.posted - own(this.money[router]) >= need ? 'held_in_flight' : 'insufficient_balance';
    const keyFree = this.keyLimit - this.keyUsed - this.keyLeased;
    if (key && need > keyFree)
      return this.keyLimit - this.keyUsed - own(this.limits[router]) >= need
        ? 'held_in_flight'
        : 'key_limit_reached';
    this.grant(this.money, router, most(need, least(want, this.free / 4n)));
    if (key) this.grant(this.limits, router, most(need, least(want, keyFree / 4n)));
    return 'ok';
  }

  private grant(parts: (Part | undefined)[], router: number, amount: bigint): void {
    const part = (parts[router] ??= { amount: 0n, inUse: 0n });
    part.amount += amount;
  }

  renew(router: number, inUse: bigint): void {
    for (const part of [this.money[router], this.limits[router]])
      if (part) part.inUse = least(inUse, part.amount);
  }

  giveBack(router: number, amount: bigint): void {
    for (const part of [this.money[router], this.limits[router]]) {
      if (!part) continue;
      part.amount -= least(amount, part.amount);
      part.inUse = least(part.inUse, part.amount);
    }
  }

  close(router: number): void {
    this.money[router] = undefined;
    this.limits[router] = undefined;
  }

  settle(router: number, id: string, amount: bigint, key: boolean): void {
    if (this.settled.has(id)) return;
    this.settled.add(id);
    const fromSlice = least(amount, this.money[router]?.amount ?? 0n);
    const extra = least(amount - fromSlice, most(this.free, 0n));
    const charge = fromSlice + extra;
    this.spend(this.money[router], fromSlice, amount);
    if (key) this.spend(this.limits[router], least(amount, this.limits[router]?.amount ?? 0n), amount);
    this.posted -= charge;
    this.keyUsed += charge;
    this.lost += amount - charge;
  }

  private spend(part: Part | undefined, part_of: bigint, amount: bigint): void {
    if (!part || part_of === 0n) return;
    part.amount -= part_of;
    part.inUse = least(part.amount, most(0n, part.inUse - amount));
  }

  reserve(id: string, amount: bigint): Outcome {
    if (this.free < amount) return this.posted >= amount ? 'held_in_flight' : 'insufficient_balance';
    this.held += amount;
    this.orders.set(id, amount);
    return 'ok';
  }

  capture(id: string): void {
    const amount = this.orders.get(id)!;
    this.orders.delete(id);
    this.held -= amount;
    this.posted -= amount;
  }
}
