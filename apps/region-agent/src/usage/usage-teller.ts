import { type LifeUsage, type UsageReport, type UsageTaken } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { Superseded } from '../control/control-plane.js';
import { Backoff, ignoreAbort, settledWithin, sleep } from '../system/timing.js';

/** What waits to be told, and what is done with it. */
export interface UsageSource {
  /** Totals that are due and have not been taken, at most `limit`. */
  untold(limit: number): LifeUsage[];
  /** These have been taken or refused for good. */
  taken(items: readonly LifeUsage[]): void;
}

export interface TellerOptions {
  source: UsageSource;
  bucketSeconds: number;
  send(report: UsageReport, signal: AbortSignal): Promise<UsageTaken>;
  log: AgentLog;
  onSuperseded(): void;
}

const atOnce = 200;

/** Tells the control plane the totals until it has taken them; an answer that was lost is asked for again. */
export class UsageTeller {
  private readonly stopping = new AbortController();
  private running: Promise<void> | null = null;
  private again = false;

  constructor(private readonly options: TellerOptions) {}

  /** There may be something to tell. */
  kick(): void {
    this.again = true;
    if (this.stopping.signal.aborted) return;
    this.running ??= this.pump().finally(() => {
      this.running = null;
      if (this.again) this.kick();
    });
  }

  /** Waits until all has been taken, at most `ms`, then ends; the rest is told by the next agent. */
  async stop(ms: number): Promise<void> {
    if (this.running && ms > 0) await settledWithin(this.running, ms);
    this.stopping.abort();
    await this.running;
  }

  private async pump(): Promise<void> {
    const { source, bucketSeconds, send, log, onSuperseded } = this.options;
    const { signal } = this.stopping;
    const backoff = new Backoff(500, 30_000);
    while (!signal.aborted) {
      this.again = false;
      const items = source.untold(atOnce);
      if (items.length === 0) return;
      try {
        const { refused } = await send({ bucket_seconds: bucketSeconds, items }, signal);
        for (const { index, code, message } of refused)
          log.error({ item: items[index], code }, `usage was refused: ${message}`);
        source.taken(items);
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) {
          this.stopping.abort();
          onSuperseded();
          return;
        }
        log.warn({ error: String(error) }, 'usage will be told again');
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }
}
