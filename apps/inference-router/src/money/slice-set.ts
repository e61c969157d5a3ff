import type { Nano, SliceInfo } from '@nebo/contracts';
import type { Clock } from './clock.js';
import { Slice } from './slice.js';

/** The slices of one account at this router, as identity-billing's answers make and end them. */
export class SliceSet {
  account: Slice | null = null;
  readonly keys = new Map<string, Slice>();
  /** Replaced slices, whose requests may still run: of a month that is over. */
  former: Slice[] = [];

  constructor(private readonly clock: Clock) {}

  get hasNone(): boolean {
    return !this.account && this.keys.size === 0 && this.former.length === 0;
  }

  slices(): Slice[] {
    return [...(this.account ? [this.account] : []), ...this.keys.values(), ...this.former];
  }

  /** The key's slice; one of a month that is over is put away. Its term ends with its month, by identity-billing's clock. */
  keySlice(key: string, now: number): Slice | null {
    const slice = this.keys.get(key);
    if (!slice) return null;
    if (slice.isValid(now) || slice.month === this.clock.month()) return slice;
    this.putAway(slice);
    return null;
  }

  private putAway(slice: Slice): void {
    this.keys.delete(slice.keyId!);
    this.former.push(slice);
  }

  /** Takes what a `renew` or `return` answered; a slice that it leaves out is closed. */
  update(asked: readonly Slice[], answered: ReadonlyMap<string, SliceInfo>, askedAt: number): void {
    for (const slice of asked) {
      const info = answered.get(slice.id);
      if (info) slice.update(info, askedAt);
      if (!info || (slice.amount <= 0n && slice.inUse === 0n)) this.drop(slice);
    }
  }

  /** The same for a `renew`, which told what is in use. A key's slice that gets no more time is put away: its month is over. */
  renewed(asked: readonly Slice[], answered: ReadonlyMap<string, SliceInfo>, askedAt: number): void {
    const told = asked.map(({ inUse }) => inUse);
    this.update(asked, answered, askedAt);
    asked.forEach((slice, index) => (slice.told = told[index]!));
    const now = this.clock.now();
    for (const slice of this.keys.values())
      if (!slice.isValid(now) && asked.includes(slice)) this.putAway(slice);
  }

  /** Is so much free, of the account's money and of the key's limit? */
  protected covers(amount: Nano, key: string | null, now: number): boolean {
    if (!this.account?.covers(amount, now)) return false;
    return key === null || this.keySlice(key, now)?.covers(amount, now) === true;
  }

  /** The slice of an answer: one that is known, or a new one, and then the one that it replaces is put away. */
  protected adopt(given: Slice | null, info: SliceInfo, askedAt: number, keyId: string | null): Slice {
    const known = given?.id === info.id ? given : this.former.find(({ id }) => id === info.id);
    if (given && given !== known) this.former.push(given);
    if (!known) return new Slice(info, askedAt, keyId);
    this.former = this.former.filter((slice) => slice !== known);
    known.update(info, askedAt);
    return known;
  }

  protected drop(slice: Slice): void {
    if (this.account === slice) this.account = null;
    if (slice.keyId !== null && this.keys.get(slice.keyId) === slice) this.keys.delete(slice.keyId);
    this.former = this.former.filter((other) => other !== slice);
  }
}
