/**
 * `@nebo/contracts/wake`: also for a process that needs nothing else of the contracts at run time.
 *
 * The words between an edge and the agent of its region: to serve an on-demand replica an edge takes a hold on it. While
 * any hold lives the agent does not put the replica to sleep, and only while its own hold lives does an edge use the
 * replica's address: another app may have it afterwards. Nothing of this passes through the control plane.
 */

/** What an edge may do with a replica. */
export interface ReplicaHold {
  /** Where the replica answers, ready. */
  host: string;
  port: number;
  /** Number of this start of the replica: an address may stay the same over several. */
  life: number;
  /** Whether it slept: this hold, or one that was asked for at the same time, has started it. */
  started: boolean;
  /** Milliseconds without use after which the edge gives the hold back. */
  idle_ms: number;
  /** Milliseconds until the hold lapses when it is not renewed. */
  lease_ms: number;
}

/**
 * Why there is no hold. `unknown`: this agent was not told of the replica, or not any more. `crashed`: its process ends
 * before it is ready. `not_ready`: it was not ready in time. `failed`: the region could not start it. `away`: the agent
 * does not answer or is ending.
 */
export const wakeRefusals = ['unknown', 'crashed', 'not_ready', 'failed', 'away'] as const;
export type WakeRefusalCode = (typeof wakeRefusals)[number];

/** Thrown where a hold was asked for. */
export class WakeRefused extends Error {
  constructor(
    readonly code: WakeRefusalCode,
    /** Milliseconds after which asking again makes sense. */
    readonly retryAfterMs = 1_000,
  ) {
    super(`the replica cannot be woken: ${code}`);
    this.name = 'WakeRefused';
  }
}

/**
 * An agent as an edge sees it. `holder` names one hold of one edge and is never used again after its release, so that a
 * late release or renewal touches no newer hold.
 */
export interface WakeDesk {
  /**
   * Takes a hold, or renews it; starts the replica when it sleeps and waits until it is ready. Any number of calls start
   * it once.
   * @throws WakeRefused
   */
  hold(holder: string, replicaId: string, signal: AbortSignal): Promise<ReplicaHold>;
  /**
   * Renews a hold without starting anything.
   * @returns null when the replica is not as it was held: the address must not be used any more
   * @throws WakeRefused `away`
   */
  renew(holder: string, replicaId: string): Promise<ReplicaHold | null>;
  /**
   * Gives a hold back after its idle time. Nothing may be under way over it.
   * @returns whether the replica goes to sleep by it
   */
  release(holder: string, replicaId: string): Promise<boolean>;
  /** Calls back when this agent is gone: every hold with it. The answer removes the listener. */
  onLost(listener: () => void): () => void;
}

/** Where an agent that is another process is asked. */
export type WakeAddress = { socketPath: string } | { host: string; port: number };

/**
 * Reads `unix:/path/to/socket` or `http://host:port`.
 * @throws Error with a sentence
 */
export function parseWakeAddress(text: string): WakeAddress {
  if (text.startsWith('unix:')) {
    const socketPath = text.slice('unix:'.length);
    // The kernel's limit for such a path (sun_path), with room for its end.
    if (socketPath.startsWith('/') && Buffer.byteLength(socketPath) <= 100) return { socketPath };
    throw new Error(`it must be unix: and an absolute path of at most 100 bytes, not "${text}"`);
  }
  const url = URL.parse(text);
  if (url?.protocol === 'http:' && url.pathname === '/' && url.search === '' && url.username === '')
    return { host: url.hostname.replace(/^\[|\]$/g, ''), port: url.port === '' ? 80 : Number(url.port) };
  throw new Error(`it must be unix:/path or http://host:port, not "${text}"`);
}
