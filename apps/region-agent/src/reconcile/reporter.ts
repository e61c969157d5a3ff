import { type AgentKind, type Observed } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { Superseded } from '../control/control-plane.js';
import { Backoff, ignoreAbort, settledWithin, sleep } from '../system/timing.js';

/** An observation before the reporter stamps it. */
export type Observation = Omit<Observed, 'at'>;

/** Reports of so many milliseconds travel together; the more went last time, the longer. */
const gatherMs = 25;
const longestMs = 100;
/** What is only on the way to somewhere is said when it still is after so many milliseconds. */
const passingMs = 300;

/** Reports in one call. */
const atOnce = 100;
/** Bytes in one call beside its last report: a body that a service does not take would be sent again for ever. */
const bytesAtOnce = 256 * 1024;

interface Entry {
  item: Observed;
  last: boolean;
  /** Not sent before; `performance.now()`. */
  from: number;
}

/**
 * Keeps the latest observation of every id and sends what has not been taken yet. After a lost control plane all of them
 * are sent again, since it may have been restored from a backup.
 */
export class Reporter {
  private readonly latest = new Map<string, Entry>();
  /** Keys of what has not been taken; the others need not be looked through. */
  private readonly unsent = new Set<string>();
  private readonly stopping = new AbortController();
  private running: Promise<void> | null = null;
  private readonly waiters = new Set<() => void>();

  constructor(
    private readonly send: (items: Observed[], signal: AbortSignal) => Promise<void>,
    private readonly log: AgentLog,
    private readonly onSuperseded: () => void,
  ) {}

  /**
   * Reports.
   * @param last nothing more will be said of this id, which is then forgotten once taken
   * @param passing a state that something else follows at once, as a rule: then only that is said
   */
  report(observation: Observation, last = false, passing = false): void {
    const item: Observed = { ...observation, at: new Date().toISOString() };
    const from = performance.now() + (passing ? passingMs : 0);
    const about = key(observation.kind, observation.id);
    this.latest.set(about, { item, last, from });
    this.unsent.add(about);
    this.kick();
  }

  /** Settled when what was said last of this id has been taken. @throws the signal's reason */
  taken(kind: AgentKind, id: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const waits = this.unsent.has(key(kind, id));
        if (waits && !signal.aborted) return;
        this.waiters.delete(look);
        signal.removeEventListener('abort', look);
        if (signal.aborted) reject(signal.reason as Error);
        else resolve();
      };
      this.waiters.add(look);
      signal.addEventListener('abort', look);
      look();
    });
  }

  /** Sends everything again. */
  resend(): void {
    for (const about of this.latest.keys()) this.unsent.add(about);
    this.kick();
  }

  /** Waits until all has been taken, at most `ms`, then ends. */
  async stop(ms: number): Promise<void> {
    // There is no time left to wait for what follows.
    for (const entry of this.latest.values()) entry.from = 0;
    const idle = new Promise<void>((resolve) => {
      const look = () => {
        if (this.unsent.size === 0) resolve();
      };
      this.waiters.add(look);
      look();
    });
    await settledWithin(idle, ms);
    this.stopping.abort();
    await this.running;
  }

  private kick(): void {
    if (this.stopping.signal.aborted) return;
    this.running ??= this.pump().finally(() => {
      this.running = null;
      if (this.unsent.size > 0) this.kick();
    });
  }

  private async pump(): Promise<void> {
    const signal = this.stopping.signal;
    const backoff = new Backoff(200, 5_000);
    let sent = 0;
    while (!signal.aborted) {
      await sleep(Math.min(longestMs, gatherMs * Math.max(1, sent)), signal).catch(ignoreAbort);
      if (this.unsent.size === 0) return;
      const batch = this.due();
      if (batch.length === 0) continue;
      try {
        await this.send(
          batch.map(([, entry]) => entry.item),
          signal,
        );
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) {
          this.stopping.abort();
          this.onSuperseded();
          return;
        }
        this.log.debug({ error: String(error) }, 'observations will be sent again');
        await sleep(backoff.next(), signal).catch(ignoreAbort);
        continue;
      }
      backoff.reset();
      sent = batch.length;
      for (const [about, entry] of batch) {
        // A newer observation may have replaced it meanwhile, and is still to be sent.
        if (this.latest.get(about) !== entry) continue;
        this.unsent.delete(about);
        if (entry.last) this.latest.delete(about);
      }
      for (const tell of this.waiters) tell();
    }
  }

  private due(): [about: string, entry: Entry][] {
    const now = performance.now();
    const found: [string, Entry][] = [];
    let bytes = 0;
    for (const about of this.unsent) {
      const entry = this.latest.get(about)!;
      if (entry.from > now) continue;
      found.push([about, entry]);
      bytes += Buffer.byteLength(JSON.stringify(entry.item));
      if (found.length === atOnce || bytes > bytesAtOnce) break;
    }
    return found;
  }
}

const key = (kind: AgentKind, id: string) => `${kind}/${id}`;
