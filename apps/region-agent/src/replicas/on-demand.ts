import { type ReplicaHold, WakeRefused, type WakeRefusalCode } from '@nebo/contracts/wake';
import { ignoreAbort, sleep } from '../system/timing.js';

/** A hold that nobody renews lapses after this time. */
export const leaseMs = 30_000;
/** A pause after crashes up to this length is waited out; before a longer one the answer is no, at once. */
const patienceMs = 5_000;

interface Waiter {
  holder: string;
  resolve(hold: ReplicaHold): void;
  reject(error: WakeRefused): void;
}

/**
 * Who uses one on-demand replica. Everything here is decided in one turn of the event loop: a replica that is given up for
 * sleep is closed in the same moment, so a hold either comes before that or waits for the next start.
 */
export class OnDemand {
  /** Holder → when it lapses. */
  private readonly holds = new Map<string, number>();
  private readonly waiters = new Set<Waiter>();
  private address: { host: string; port: number; life: number } | null = null;
  private lives = 0;
  private lastUse = 0;
  private restUntil = 0;
  private timer: NodeJS.Timeout | null = null;
  private ended: WakeRefusalCode | null = null;
  private onIdle: () => void = () => undefined;
  private onWanted: () => void = () => undefined;

  constructor(private readonly idleMs: number) {}

  /** Requests that wait for a start. */
  get waiting(): number {
    return this.waiters.size;
  }

  /** See `WakeDesk.hold`. */
  hold(holder: string, signal: AbortSignal): Promise<ReplicaHold> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason as Error);
      if (this.ended) return reject(new WakeRefused(this.ended));
      if (this.address) return resolve(this.grant(holder, false));
      const rest = this.restUntil - performance.now();
      if (rest > patienceMs) return reject(new WakeRefused('crashed', Math.ceil(rest)));
      const leave = (): void => {
        this.waiters.delete(waiter);
        reject(signal.reason as Error);
      };
      const over = (): void => {
        this.waiters.delete(waiter);
        signal.removeEventListener('abort', leave);
      };
      const waiter: Waiter = {
        holder,
        resolve: (hold) => (over(), resolve(hold)),
        reject: (error) => (over(), reject(error)),
      };
      signal.addEventListener('abort', leave, { once: true });
      this.waiters.add(waiter);
      this.onWanted();
    });
  }

  /** See `WakeDesk.renew`. */
  renew(holder: string): ReplicaHold | null {
    return this.address ? this.grant(holder, false) : null;
  }

  /** See `WakeDesk.release`. */
  release(holder: string): boolean {
    if (!this.holds.delete(holder) || !this.address || this.holds.size > 0) return false;
    this.close();
    return true;
  }

  /** Waits until a start is wanted and the pause after a crash is over. */
  async wanted(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (this.waiters.size > 0) {
        const rest = this.restUntil - performance.now();
        if (rest <= 0) return;
        await sleep(rest, signal).catch(ignoreAbort);
        continue;
      }
      await new Promise<void>((resolve) => {
        this.onWanted = resolve;
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }

  /**
   * The replica is ready: whoever waits has a hold now.
   * @returns settled when the replica is to go to sleep; it is closed already then
   */
  open(host: string, port: number): Promise<void> {
    this.address = { host, port, life: ++this.lives };
    this.restUntil = 0;
    this.lastUse = performance.now();
    const idle = new Promise<void>((resolve) => (this.onIdle = resolve));
    for (const waiter of [...this.waiters]) waiter.resolve(this.grant(waiter.holder, true));
    this.arm();
    return idle;
  }

  /** The replica's process has ended: no address is any good any more. */
  shut(): void {
    this.address = null;
    this.holds.clear();
    if (this.timer) clearTimeout(this.timer);
    this.timer = null;
  }

  /** Sends away whoever waits. */
  refuse(code: WakeRefusalCode, retryAfterMs: number): void {
    for (const waiter of [...this.waiters]) waiter.reject(new WakeRefused(code, retryAfterMs));
  }

  /** No start before so many milliseconds. */
  rest(ms: number): void {
    this.restUntil = performance.now() + ms;
  }

  /** Nothing is started any more. */
  end(code: WakeRefusalCode): void {
    this.ended = code;
    this.shut();
    this.refuse(code, 1_000);
  }

  private grant(holder: string, started: boolean): ReplicaHold {
    this.lastUse = performance.now();
    this.holds.set(holder, this.lastUse + leaseMs);
    return { ...this.address!, started, idle_ms: this.idleMs, lease_ms: leaseMs };
  }

  /** Holds that lapsed were of edges that died: their last use is not known, so the idle time runs from the last word. */
  private arm(): void {
    if (this.timer) clearTimeout(this.timer);
    const now = performance.now();
    for (const [holder, until] of this.holds) if (until <= now) this.holds.delete(holder);
    const due = Math.max(this.lastUse + this.idleMs, ...this.holds.values());
    if (due <= now) return this.close();
    this.timer = setTimeout(() => this.arm(), due - now + 1);
    this.timer.unref();
  }

  private close(): void {
    this.shut();
    this.onIdle();
  }
}
