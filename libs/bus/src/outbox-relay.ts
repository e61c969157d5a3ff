import { type Database } from '@nebo/persistence';
import { asError, backoffMs, sleep } from './backoff.js';
import { isEnvelope, type Envelope } from './envelope.js';
import { type ErrorHook, type EventBus } from './event-bus.js';

export interface OutboxRelayOptions {
  /** Safety poll, in milliseconds: what a lost notification costs at most. */
  pollMs?: number;
  /** Rows per transaction. */
  batch?: number;
  /** A publish that takes longer is given up and tried again, so that no transaction stays open for long. */
  publishMs?: number;
  /** How long sent rows are kept for `republishSince`, in milliseconds. */
  keepMs?: number;
  /** How often old rows are deleted and rows of other stores looked for, in milliseconds. */
  tidyEveryMs?: number;
  onError?: ErrorHook;
}

/** Least time between two looks at the outbox, milliseconds: a burst of events goes in few transactions. */
const gatherMs = 50;

interface Row {
  seq: bigint;
  id: string;
  envelope: unknown;
}

/**
 * Carries a schema's outbox to the bus: woken by LISTEN, with a safety poll. Any number may run at once. An event may be
 * sent twice (the process dies between sending and marking), never zero times; the inbox drops doubles.
 */
export class OutboxRelay {
  private readonly pollMs: number;
  private readonly batch: number;
  private readonly publishMs: number;
  private readonly keepMs: number;
  private readonly tidyEveryMs: number;
  private readonly onError: ErrorHook;
  private readonly stopping = new AbortController();
  private loop: Promise<void> | undefined;
  private unlisten: (() => Promise<void>) | undefined;
  private dirty = false;
  private wakeUp: (() => void) | undefined;
  private lastError: string | null = null;
  /** Sent by this relay and not yet settled; only for a bus that tells. */
  private readonly unsettled = new Set<string>();
  private settled: string[] = [];
  private offSettled: (() => void) | undefined;
  /** The store for which older rows have been looked through. */
  private checkedStore: string | null = null;
  private tidyAt = 0;

  constructor(
    private readonly db: Database,
    private readonly bus: EventBus,
    options: OutboxRelayOptions = {},
  ) {
    this.pollMs = options.pollMs ?? 500;
    this.batch = options.batch ?? 256;
    this.publishMs = options.publishMs ?? 10_000;
    this.keepMs = options.keepMs ?? 86_400_000;
    this.tidyEveryMs = options.tidyEveryMs ?? 600_000;
    this.onError = options.onError ?? (() => undefined);
  }

  /** Starts relaying in the background. @throws when PostgreSQL cannot be reached now */
  async start(): Promise<void> {
    this.unlisten = await this.db.listen(`${this.db.schema}_outbox`, () => this.wake());
    this.offSettled = this.bus.onSettled?.((ids) => {
      for (const id of ids) if (this.unsettled.delete(id)) this.settled.push(id);
      if (this.settled.length >= this.batch) this.wake();
    });
    this.loop = this.run();
  }

  /** Ends after the batch at hand. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.wakeUp?.();
    await this.loop;
    await this.unlisten?.();
    this.offSettled?.();
    await this.markSettled().catch(() => undefined);
  }

  /** Looks at the outbox now. */
  wake(): void {
    this.dirty = true;
    this.wakeUp?.();
  }

  /** For health: the last failure, null while things go well. */
  status(): { lastError: string | null } {
    return { lastError: this.lastError };
  }

  /** For metrics: rows that wait, and for how many milliseconds the oldest of them does. */
  async backlog(): Promise<{ unsent: number; oldestMs: number }> {
    const [row] = await this.db.query<{ unsent: bigint; oldest_ms: number }>(
      `select count(*) as unsent, coalesce(extract(epoch from now() - min(created_at)) * 1000, 0)::float8 as oldest_ms
       from outbox where sent_at is null`,
    );
    return { unsent: Number(row!.unsent), oldestMs: row!.oldest_ms };
  }

  /**
   * Says everything again that was sent at `date` or later: for the operator, when a store lost part of its events
   * without being made anew. (A store that was wiped is noticed and needs no call.) Rows are kept for one day.
   * @returns number of events that will be sent again
   */
  async republishSince(date: Date): Promise<number> {
    const rows = await this.db.query(
      'update outbox set sent_at = null, store = null where sent_at >= $1::timestamptz returning 1 as again',
      [date],
    );
    if (rows.length > 0) this.wake();
    return rows.length;
  }

  /** Relays until nothing is left unsent; for tests and for a process that ends. @returns number of events sent */
  async drain(): Promise<number> {
    for (let total = 0; ;) {
      const sent = await this.relayBatch();
      total += sent;
      if (sent === 0) return total;
    }
  }

  private async run(): Promise<void> {
    for (let failures = 0; !this.stopping.signal.aborted;) {
      this.dirty = false;
      try {
        await this.relay();
        failures = 0;
        this.lastError = null;
        await this.pause(this.dirty ? gatherMs : this.pollMs, this.dirty);
      } catch (error) {
        if (this.stopping.signal.aborted) return;
        failures += 1;
        this.lastError = asError(error).message;
        this.onError(asError(error), `outbox ${this.db.schema}`);
        await sleep(backoffMs(failures, { baseMs: 100, maxMs: 5_000 }), this.stopping.signal);
      }
    }
  }

  private async relay(): Promise<void> {
    const store = this.bus.store();
    if (store === null) {
      this.lastError = this.bus.status().detail;
      return this.pause(this.pollMs, false);
    }
    await this.markSettled();
    if (store !== this.checkedStore) {
      await this.republishOtherStores(store);
      this.checkedStore = store;
    }
    while (!this.stopping.signal.aborted && (await this.relayBatch()) === this.batch);
    if (Date.now() >= this.tidyAt) {
      // A relay that died just after a wipe may have marked its last rows with the old store.
      await this.republishOtherStores(store);
      await this.prune();
      this.tidyAt = Date.now() + this.tidyEveryMs;
    }
  }

  /** @param whole not to be cut short by what is said meanwhile */
  private async pause(ms: number, whole: boolean): Promise<void> {
    if (this.stopping.signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wakeUp = () => {
        if (whole && !this.stopping.signal.aborted) return;
        clearTimeout(timer);
        resolve();
      };
    });
    this.wakeUp = undefined;
  }

  /** @returns number of rows taken */
  private async relayBatch(): Promise<number> {
    // Read before sending: if the store changes meanwhile, the rows carry the old name and are sent again.
    const store = this.bus.store();
    if (store === null) return 0;
    const taken: string[] = [];
    try {
      return await this.db.transaction(async (tx) => {
        const rows = await tx.query<Row>(
          `select seq, id, envelope from outbox where sent_at is null order by seq limit $1::int for update skip locked`,
          [this.batch],
        );
        if (rows.length === 0) return 0;
        const envelopes = rows.map((row) => row.envelope).filter((envelope) => this.believable(envelope));
        if (this.bus.onSettled !== undefined) {
          for (const { id } of envelopes) taken.push(id);
          for (const id of taken) this.unsettled.add(id);
        }
        const limit = AbortSignal.any([this.stopping.signal, AbortSignal.timeout(this.publishMs)]);
        await this.bus.publish(envelopes, limit);
        await tx.query('update outbox set sent_at = now(), store = $2 where seq = any($1::bigint[])', [
          rows.map((row) => row.seq.toString()),
          store,
        ]);
        return rows.length;
      });
    } catch (error) {
      for (const id of taken) this.unsettled.delete(id);
      throw error;
    }
  }

  /** `say` lets nothing else in, but a row written by hand must not hold up all that come after it. */
  private believable(envelope: unknown): envelope is Envelope {
    if (isEnvelope(envelope)) return true;
    this.onError(
      new TypeError('the outbox holds something that is no event envelope; left out'),
      this.db.schema,
    );
    return false;
  }

  private async republishOtherStores(store: string): Promise<void> {
    // Two ranges instead of "<>": so the index on store finds the few rows among a day's.
    await this.db.query(
      'update outbox set sent_at = null, store = null where sent_at is not null and (store < $1 or store > $1)',
      [store],
    );
  }

  private async markSettled(): Promise<void> {
    const ids = this.settled;
    if (ids.length === 0) return;
    this.settled = [];
    try {
      await this.db.query(
        'update outbox set store = null where id = any($1::uuid[]) and sent_at is not null',
        [ids],
      );
    } catch (error) {
      this.settled.push(...ids);
      throw error;
    }
  }

  /** Deletes old sent rows in batches. With a bus that tells what is settled, only those: the others must survive. */
  private async prune(): Promise<void> {
    const settledOnly = this.bus.onSettled !== undefined;
    for (let gone = 1_000; gone === 1_000 && !this.stopping.signal.aborted;) {
      const rows = await this.db.query(
        `delete from outbox where seq = any(array(
           select seq from outbox where sent_at < now() - $1::float8 * interval '1 millisecond'
             and (store is null or not $2::boolean)
           order by sent_at limit 1000 for update skip locked))
         returning 1 as gone`,
        [this.keepMs, settledOnly],
      );
      gone = rows.length;
    }
  }
}
