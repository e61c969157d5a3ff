import type { Peers } from '@nebo/service-kit';

/** Where a key stands in its window. */
export interface RateState {
  allowed: boolean;
  limit: number;
  remaining: number;
  /** Seconds until the window ends, at least 1. */
  resetSeconds: number;
}

/** Fixed window per key (spec part 8). */
export interface RateLimiter {
  take(keyId: string): RateState | Promise<RateState>;
}

/** What a limiter needs to know of the time; tests move it. */
export type Clock = () => number;

interface Window {
  start: number;
  used: number;
  /** Requests that this replica may still admit without asking. */
  leased: number;
  /** Known to be used up in all replicas. */
  exhausted: boolean;
  asking: Promise<void> | undefined;
}

/** Windows that are kept without a look. */
const mostOld = 50_000;

/** The quota and what both limiters share: windows by key, and forgetting old ones. */
abstract class Windows {
  protected readonly windows = new Map<string, Window>();
  /** At so many windows those that are over are looked for. */
  private forgetAt = mostOld;

  constructor(
    protected readonly quota: number,
    protected readonly seconds: number,
    protected readonly now: Clock,
  ) {}

  protected windowOf(keyId: string): Window {
    const start = Math.floor(this.now() / 1000 / this.seconds) * this.seconds;
    let window = this.windows.get(keyId);
    if (!window || window.start !== start) {
      if (this.windows.size >= this.forgetAt) this.forgetOld(start);
      window = { start, used: 0, leased: 0, exhausted: false, asking: undefined };
      this.windows.set(keyId, window);
    }
    return window;
  }

  /** Windows that are over go; that of a key that is counted now never does, however many there are. */
  private forgetOld(start: number): void {
    for (const [keyId, window] of this.windows) if (window.start !== start) this.windows.delete(keyId);
    this.forgetAt = Math.max(mostOld, 2 * this.windows.size);
  }

  protected state(window: Window, allowed: boolean, remaining: number): RateState {
    const resetSeconds = Math.max(1, Math.ceil(window.start + this.seconds - this.now() / 1000));
    return { allowed, limit: this.quota, remaining: Math.max(0, remaining), resetSeconds };
  }
}

/** The counter of one process that is alone. */
export class MemoryRateLimiter extends Windows implements RateLimiter {
  constructor(quota: number, seconds: number, now: Clock = Date.now) {
    super(quota, seconds, now);
  }

  take(keyId: string): RateState {
    const window = this.windowOf(keyId);
    const allowed = window.used < this.quota;
    if (allowed) window.used += 1;
    return this.state(window, allowed, this.quota - window.used);
  }
}

/** Asks for a block of a window; answers how many requests were granted. */
export type LeaseBlock = (keyId: string, windowStart: number, want: number) => Promise<number>;

/**
 * The share of one replica: blocks of a counter that identity-billing owns, a twentieth of the quota, one by one in the last
 * fifth. Never more than the quota is admitted; at most a block is lost with a replica. When the counter cannot be asked,
 * requests pass: the limit protects the service, not money (docs/decisions/005-rate-limit.md).
 */
export class LeasedRateLimiter extends Windows implements RateLimiter {
  constructor(
    quota: number,
    seconds: number,
    private readonly lease: LeaseBlock,
    now: Clock = Date.now,
  ) {
    super(quota, seconds, now);
  }

  async take(keyId: string): Promise<RateState> {
    const window = this.windowOf(keyId);
    while (window.leased === 0 && !window.exhausted) {
      window.asking ??= this.ask(keyId, window).finally(() => (window.asking = undefined));
      await window.asking;
    }
    const allowed = window.leased > 0;
    if (allowed) {
      window.leased -= 1;
      window.used += 1;
    }
    return this.state(window, allowed, allowed ? this.quota - window.used : 0);
  }

  private async ask(keyId: string, window: Window): Promise<void> {
    const block = window.used > this.quota * 0.8 ? 1 : Math.max(1, Math.floor(this.quota / 20));
    try {
      const granted = await this.lease(keyId, window.start, block);
      window.leased += granted;
      window.exhausted = granted === 0;
    } catch {
      window.leased += 1;
    }
  }
}

/** The lease call at identity-billing. */
export function leaseFrom(peers: Peers, quota: number, seconds: number): LeaseBlock {
  return async (keyId, windowStart, want) => {
    const { granted } = await peers.call<{ granted: number }>('identity-billing', '/internal/v1/rate/lease', {
      account: null,
      body: { key_id: keyId, window_start: windowStart, seconds, quota, want },
    });
    return granted;
  };
}
