import { type LiveRoute, type Replica } from '../routes/snapshot.js';

/** Milliseconds that a replica that refused a connection is passed over, if there is another. */
const REST_MS = 2_000;

/** Chooses replicas in turn, passing over those that have just refused a connection. */
export class Balancer {
  private readonly resting = new Map<string, number>();

  /**
   * @param tried replicas that this request has already been given to
   * @returns null when every replica has been tried
   */
  choose(route: Extract<LiveRoute, { kind: 'replicas' }>, tried: readonly Replica[]): Replica | null {
    const { replicas, turn } = route;
    const now = performance.now();
    let fallback: Replica | null = null;
    for (let i = 0; i < replicas.length; i++) {
      const replica = replicas[(turn.next + i) % replicas.length]!;
      if (tried.includes(replica)) continue;
      if ((this.resting.get(addressOf(replica)) ?? 0) > now) {
        fallback ??= replica;
        continue;
      }
      turn.next = (turn.next + i + 1) % replicas.length;
      return replica;
    }
    return fallback;
  }

  /** Notes that a replica did not take a connection. */
  refused(replica: Replica): void {
    const now = performance.now();
    for (const [address, until] of this.resting) if (until <= now) this.resting.delete(address);
    this.resting.set(addressOf(replica), now + REST_MS);
  }

  /** Notes that a replica answered. */
  answered(replica: Replica): void {
    if (this.resting.size > 0) this.resting.delete(addressOf(replica));
  }
}

/** `host:port`, IPv6 in brackets. */
export function addressOf(replica: Replica): string {
  return `${replica.host.includes(':') ? `[${replica.host}]` : replica.host}:${replica.port}`;
}
