import type { Nano, SliceInfo } from '@nebo/contracts';

/**
 * A slice as this router knows it. `held` is the worst case of what runs; `owed` is settled, but identity-billing has not
 * said yet that it knows: until then that money stays in the slice.
 */
export class Slice {
  readonly id: string;
  /** Limited keys: the month that it counts in. */
  readonly month: string | null;
  version = 0;
  amount: Nano = 0n;
  held: Nano = 0n;
  owed: Nano = 0n;
  /** What identity-billing thinks is in use, at most: so much is not `available` to the account's orders. */
  told: Nano = 0n;
  private expiresAt = 0;
  private renewAt = 0;

  constructor(
    info: SliceInfo,
    askedAt: number,
    /** The limited key whose limit it is a part of; null: the account's. */
    readonly keyId: string | null,
  ) {
    this.id = info.id;
    this.month = info.month ?? null;
    this.update(info, askedAt);
  }

  get free(): Nano {
    return this.amount - this.held - this.owed;
  }

  get inUse(): Nano {
    return this.held + this.owed;
  }

  /** @param askedAt when the call was sent whose answer this is: the term counts from there */
  update(info: SliceInfo, askedAt: number): void {
    // An answer that was overtaken by a newer one.
    if (info.version < this.version) return;
    this.version = info.version;
    this.amount = BigInt(info.amount);
    this.told = this.amount;
    this.expiresAt = askedAt + info.expires_in;
    this.renewAt = askedAt + info.expires_in / 3;
  }

  /** May anything new be held from it? */
  isValid(now: number): boolean {
    return now < this.expiresAt;
  }

  /** Its amount may be known too low: identity-billing shall say it again soon. */
  askAgain(): void {
    this.renewAt = 0;
  }

  /** A third of the term is over, or much less is in use than was said. */
  isRenewalDue(now: number): boolean {
    return now >= this.renewAt || this.told - this.inUse > this.amount / 2n;
  }

  /** Can so much be held from it now? */
  covers(amount: Nano, now: number): boolean {
    return now < this.expiresAt && this.amount - this.held - this.owed >= amount;
  }
}
