import { type Database } from '@nebo/persistence';
import { type Claim, LeaseLost, renew, wakesOf } from './table.js';
import { type LifecycleObserver } from './worker.js';

/** A thing in this worker's hands. */
export interface Held {
  /** As of the last read or write. */
  claim: Claim;
  /** Aborted when the lease is lost. */
  readonly lost: AbortController;
  /** Called when the thing was woken while a step runs. */
  onWoken: (() => void) | undefined;
  /** A write is under way: what another connection sees of the row may be its result already. */
  writing: boolean;
  /** `performance.now()` of the last moment when the lease was surely ours. */
  renewedAt: number;
}

/** Renews all leases of a worker in one statement, in the background, and tells the steps whose lease is gone. */
export class Leases {
  private readonly held = new Set<Held>();
  private timer: NodeJS.Timeout | undefined;
  private soon: NodeJS.Timeout | undefined;
  private renewing = false;

  constructor(
    private readonly db: Database,
    private readonly leaseMs: number,
    private readonly renewMs: number,
    private readonly observer: LifecycleObserver,
  ) {}

  start(): void {
    this.timer = setInterval(() => void this.renewAll(), this.renewMs);
  }

  stop(): void {
    clearInterval(this.timer);
    clearTimeout(this.soon);
  }

  hold(claim: Claim): Held {
    const held: Held = {
      claim,
      lost: new AbortController(),
      onWoken: undefined,
      writing: false,
      renewedAt: performance.now(),
    };
    this.held.add(held);
    return held;
  }

  drop(held: Held): void {
    this.held.delete(held);
  }

  all(): Held[] {
    return [...this.held];
  }

  /**
   * Something was notified: perhaps one of the things in hand was woken. Many notifications make one look, and steps that
   * take a moment are over before it.
   */
  lookSoon(): void {
    if (this.held.size === 0) return;
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      void this.lookForWakes();
    }, 50);
  }

  private async lookForWakes(): Promise<void> {
    const asked = this.all().filter(({ onWoken }) => onWoken !== undefined);
    if (asked.length === 0) return;
    try {
      const rows = await wakesOf(
        this.db,
        asked.map(({ claim }) => claim),
      );
      for (const row of rows) {
        const held = asked.find(({ claim }) => claim.kind === row.kind && claim.id === row.id);
        if (held && held.claim.fence === row.fence && held.claim.wakes !== row.wakes) held.onWoken?.();
      }
    } catch (error) {
      // The next renewal looks too.
      this.observer.trouble?.(error as Error);
    }
  }

  private async renewAll(): Promise<void> {
    if (this.renewing || this.held.size === 0) return;
    this.renewing = true;
    const asked = this.all().map((held) => ({ held, fence: held.claim.fence, at: performance.now() }));
    try {
      const claims = asked.map(({ held, fence }) => ({ kind: held.claim.kind, id: held.claim.id, fence }));
      const rows = await renew(this.db, claims, this.leaseMs);
      const still = new Map(rows.map((row) => [`${row.kind} ${row.id}`, row]));
      for (const { held, fence, at } of asked) {
        // Meanwhile it may have taken a new fence or ended; then this answer is about the past.
        if (!this.held.has(held) || held.claim.fence !== fence) continue;
        const row = still.get(`${held.claim.kind} ${held.claim.id}`);
        if (row === undefined) {
          // If the lease is gone the guarded write finds out by itself.
          if (!held.writing) this.lose(held);
        } else {
          held.renewedAt = at;
          if (row.wakes !== held.claim.wakes) held.onWoken?.();
        }
      }
    } catch (error) {
      this.observer.trouble?.(error as Error);
      // Nobody can say any more whose they are: after the length of a lease another worker may have them.
      for (const held of this.held) if (performance.now() - held.renewedAt > this.leaseMs) this.lose(held);
    } finally {
      this.renewing = false;
    }
  }

  private lose(held: Held): void {
    if (held.lost.signal.aborted) return;
    held.lost.abort(new LeaseLost(held.claim.kind, held.claim.id, held.claim.state));
  }
}
