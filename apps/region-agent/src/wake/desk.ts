import { type ReplicaHold, type WakeDesk, WakeRefused } from '@nebo/contracts/wake';
import { type OnDemand } from '../replicas/on-demand.js';

/** The agent's on-demand replicas for edges; in this process asked directly, by others through `WakeDoor`. */
export class ReplicaDesk implements WakeDesk {
  private readonly listeners = new Set<() => void>();
  private closed = false;

  /** @param find null for a replica that is not here or never sleeps */
  constructor(private readonly find: (replicaId: string) => OnDemand | null) {}

  async hold(holder: string, replicaId: string, signal: AbortSignal): Promise<ReplicaHold> {
    return this.replica(replicaId).hold(holder, signal);
  }

  async renew(holder: string, replicaId: string): Promise<ReplicaHold | null> {
    return this.find(replicaId)?.renew(holder) ?? null;
  }

  async release(holder: string, replicaId: string): Promise<boolean> {
    return this.find(replicaId)?.release(holder) ?? false;
  }

  onLost(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The agent ends. */
  close(): void {
    this.closed = true;
    for (const listener of this.listeners) listener();
  }

  private replica(id: string): OnDemand {
    if (this.closed) throw new WakeRefused('away');
    const found = this.find(id);
    if (!found) throw new WakeRefused('unknown');
    return found;
  }
}
