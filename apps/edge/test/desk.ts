import { type ReplicaHold, type WakeDesk, WakeRefused, type WakeRefusalCode } from '@nebo/contracts';

/** An agent as a script: replicas start when they are asked for and the gate opens, sleep when all holds are given back. */
export class FakeDesk implements WakeDesk {
  /** Where a replica answers once it is started. */
  readonly ports = new Map<string, number>();
  readonly awake = new Set<string>();
  readonly holds = new Map<string, Set<string>>();
  starts = 0;
  asked = 0;
  idleMs = 60_000;
  leaseMs = 30_000;
  /** What every call is refused with. */
  refuse: WakeRefusalCode | null = null;
  retryAfterMs = 1_000;
  /** Starts wait for this. */
  gate: Promise<void> = Promise.resolve();
  private lives = 0;
  private starting = new Map<string, Promise<void>>();
  private readonly listeners = new Set<() => void>();

  async hold(holder: string, id: string, signal: AbortSignal): Promise<ReplicaHold> {
    this.asked++;
    this.check(id);
    const started = !this.awake.has(id);
    if (started) {
      await this.start(id);
      signal.throwIfAborted();
      this.check(id);
    }
    this.holds.set(id, (this.holds.get(id) ?? new Set()).add(holder));
    return this.describe(id, started);
  }

  async renew(holder: string, id: string): Promise<ReplicaHold | null> {
    if (this.refuse === 'away') throw new WakeRefused('away');
    return this.awake.has(id) && this.holds.get(id)?.has(holder) ? this.describe(id, false) : null;
  }

  async release(holder: string, id: string): Promise<boolean> {
    const holds = this.holds.get(id);
    if (!holds?.delete(holder) || holds.size > 0) return false;
    return this.awake.delete(id);
  }

  onLost(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The agent is killed: holds and replicas are no more. */
  lose(): void {
    this.awake.clear();
    this.holds.clear();
    for (const listener of this.listeners) listener();
  }

  private check(id: string): void {
    if (this.refuse) throw new WakeRefused(this.refuse, this.retryAfterMs);
    if (!this.ports.has(id)) throw new WakeRefused('unknown');
  }

  private start(id: string): Promise<void> {
    const known = this.starting.get(id);
    if (known) return known;
    this.starts++;
    const work = this.gate.then(() => {
      this.awake.add(id);
      this.lives++;
      this.starting.delete(id);
    });
    this.starting.set(id, work);
    return work;
  }

  private describe(id: string, started: boolean): ReplicaHold {
    const { idleMs: idle_ms, leaseMs: lease_ms } = this;
    return { host: '127.0.0.1', port: this.ports.get(id)!, life: this.lives, started, idle_ms, lease_ms };
  }
}
