import { asError, backoffMs, sleep, type Backoff } from '../backoff.js';
import { type ErrorHook } from '../event-bus.js';

/** Topic of exported usage records. */
export const usageTopic = 'nebo.usage.v1';

/** One usage record as it leaves: `id` is what receivers drop doubles by. */
export interface UsageRecord {
  id: string;
  /** Key of the message: all records of an account stay in order in one partition. */
  account: string;
  /** Fields of the record; `id` and `account` are added on the way out. */
  payload: Record<string, unknown>;
}

/** Where records wait: a table of identity-billing. */
export interface UsageSource {
  /** The oldest records that are not marked as sent. */
  fetchUnsent(limit: number): Promise<readonly UsageRecord[]>;
  markSent(ids: readonly string[]): Promise<void>;
}

/** What carries them: Kafka in production, a fake in tests. */
export interface UsageProducer {
  connect(): Promise<void>;
  /** Resolves when every record is acknowledged by all in-sync replicas. */
  send(records: readonly UsageRecord[]): Promise<void>;
  disconnect(): Promise<void>;
}

export interface UsageRelayOptions {
  /** How often the source is asked when nothing woke the relay, in milliseconds. */
  pollMs?: number;
  batch?: number;
  backoff?: Backoff;
  onError?: ErrorHook;
}

/**
 * Exports usage records, at least once: a record is marked only after it was acknowledged, so a crash in between sends it
 * again. Failures are tried again for ever; money never depends on this export.
 */
export class UsageRelay {
  private readonly pollMs: number;
  private readonly batch: number;
  private readonly backoff: Backoff;
  private readonly onError: ErrorHook;
  private readonly stopping = new AbortController();
  private loop: Promise<void> | undefined;
  private connected = false;
  private detail = 'not started';
  private sent = 0;
  private dirty = false;
  private wakeUp: (() => void) | undefined;

  constructor(
    private readonly source: UsageSource,
    private readonly producer: UsageProducer,
    options: UsageRelayOptions = {},
  ) {
    this.pollMs = options.pollMs ?? 1_000;
    this.batch = options.batch ?? 500;
    this.backoff = options.backoff ?? { baseMs: 500, maxMs: 30_000 };
    this.onError = options.onError ?? (() => undefined);
  }

  /** Starts exporting in the background; brokers that are away are a state, not an error. */
  start(): void {
    this.detail = 'connecting';
    this.loop ??= this.run();
  }

  /** Ends after the batch at hand. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.wakeUp?.();
    await this.loop;
    this.connected = false;
    this.detail = 'stopped';
  }

  /** New records are there. */
  wake(): void {
    this.dirty = true;
    this.wakeUp?.();
  }

  /** For health. `sent` counts acknowledged records since the start of the process. */
  status(): { connected: boolean; detail: string; sent: number } {
    return { connected: this.connected, detail: this.detail, sent: this.sent };
  }

  private async run(): Promise<void> {
    for (let failures = 0; !this.stopping.signal.aborted;) {
      try {
        if (!this.connected) {
          await this.producer.connect();
          this.connected = true;
          this.detail = 'connected';
        }
        this.dirty = false;
        const count = await this.relayBatch();
        failures = 0;
        if (count < this.batch && !this.dirty) await this.pause();
      } catch (error) {
        failures += 1;
        this.connected = false;
        this.detail = `trying again: ${asError(error).message}`;
        this.onError(asError(error), 'usage export');
        // A producer whose brokers went away may be beyond repair: begin with a new connection.
        await this.producer.disconnect().catch(() => undefined);
        await sleep(backoffMs(failures, this.backoff), this.stopping.signal);
      }
    }
    await this.producer.disconnect().catch(() => undefined);
  }

  private async relayBatch(): Promise<number> {
    const records = await this.source.fetchUnsent(this.batch);
    if (records.length === 0) return 0;
    await this.producer.send(records);
    await this.source.markSent(records.map((record) => record.id));
    this.sent += records.length;
    return records.length;
  }

  private async pause(): Promise<void> {
    const timer = new AbortController();
    this.wakeUp = () => timer.abort();
    if (!this.stopping.signal.aborted) await sleep(this.pollMs, timer.signal);
    this.wakeUp = undefined;
  }
}
