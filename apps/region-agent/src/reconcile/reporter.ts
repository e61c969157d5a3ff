import { type AgentKind, type Observed } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { Superseded } from '../control/control-plane.js';
import { Backoff, ignoreAbort, settledWithin, sleep } from '../system/timing.js';

/** An observation before the reporter stamps it. */
export type Observation = Omit<Observed, 'at'>;

/**
 * Keeps the latest observation of every id and sends what has not been taken yet. After a lost control plane all of them
 * are sent again, since it may have been restored from a backup.
 */
export class Reporter {
  private readonly latest = new Map<string, { item: Observed; sent: boolean; last: boolean }>();
  private readonly stopping = new AbortController();
  private running: Promise<void> | null = null;
  private readonly waiters = new Set<() => void>();

  constructor(
    private readonly send: (items: Observed[], signal: AbortSignal) => Promise<void>,
    private readonly log: AgentLog,
    private readonly onSuperseded: () => void,
  ) {}

  /** Reports; `last` when nothing more will be said of this id, which is then forgotten once taken. */
  report(observation: Observation, last = false): void {
    const item: Observed = { ...observation, at: new Date().toISOString() };
    this.latest.set(key(observation.kind, observation.id), { item, sent: false, last });
    this.kick();
  }

  /** Settled when what was said last of this id has been taken. @throws the signal's reason */
  taken(kind: AgentKind, id: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const waits = this.latest.get(key(kind, id))?.sent === false;
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
    for (const entry of this.latest.values()) entry.sent = false;
    this.kick();
  }

  /** Waits until all has been taken, at most `ms`, then ends. */
  async stop(ms: number): Promise<void> {
    const idle = new Promise<void>((resolve) => {
      const look = () => {
        if (![...this.latest.values()].some((entry) => !entry.sent)) resolve();
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
      if ([...this.latest.values()].some((entry) => !entry.sent)) this.kick();
    });
  }

  private async pump(): Promise<void> {
    const signal = this.stopping.signal;
    const backoff = new Backoff(200, 5_000);
    while (!signal.aborted) {
      // One turn of the loop lets reports that belong together travel together.
      await sleep(10, signal).catch(ignoreAbort);
      const batch = [...this.latest.entries()].filter(([, entry]) => !entry.sent).slice(0, 100);
      if (batch.length === 0) return;
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
      for (const [id, entry] of batch) {
        entry.sent = true;
        // A newer observation may have replaced it meanwhile.
        if (entry.last && this.latest.get(id) === entry) this.latest.delete(id);
      }
      for (const tell of this.waiters) tell();
    }
  }
}

const key = (kind: AgentKind, id: string) => `${kind}/${id}`;
