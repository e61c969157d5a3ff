import type { Nano } from '@nebo/contracts';

/** Milliseconds of each half of the window. */
const half = 10_000;

const larger = (a: Nano, b: Nano): Nano => (a > b ? a : b);

/**
 * What an account needed lately: the sum of its settlements and the most that was held at once, over a window of ten to
 * twenty seconds. A slice of about that size keeps a router from asking for more than some twenty seconds.
 */
export class Demand {
  private since: number;
  private spent: [Nano, Nano] = [0n, 0n];
  private peak: [Nano, Nano] = [0n, 0n];

  constructor(now: number) {
    this.since = now;
  }

  held(total: Nano): void {
    if (total > this.peak[0]) this.peak[0] = total;
  }

  settled(amount: Nano): void {
    this.spent[0] += amount;
  }

  /** Lets the window move; called about once a second. */
  tick(now: number, held: Nano): void {
    if (now - this.since < half) return;
    const stale = now - this.since >= 2 * half;
    this.spent = [0n, stale ? 0n : this.spent[0]];
    this.peak = [held, stale ? 0n : this.peak[0]];
    this.since = now;
  }

  /** Settled in the window. */
  get consumption(): Nano {
    return this.spent[0] + this.spent[1];
  }

  /** How large the slice should be. */
  get target(): Nano {
    return this.consumption + larger(this.peak[0], this.peak[1]);
  }
}
