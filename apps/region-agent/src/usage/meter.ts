import { type LifeUsage, type UsageReport, type UsageTaken } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { RecordLog } from '../drivers/simulated/record-log.js';
import { advance, blind, finish, forget, type LifeRecord, newLife, type NewLife, told } from './life.js';
import { type UsageSettings } from './settings.js';
import { UsageTeller } from './usage-teller.js';

/** Reads the counter of a process's group, microseconds; null: there is none. */
export type ReadCpu = () => Promise<number | null>;

/** A life that is being measured. */
export interface MeteredLife {
  /** Its process has ended; settled when its last reading is on disk. Safe to call again. */
  end(): Promise<void>;
}

interface Running {
  record: LifeRecord;
  read: ReadCpu;
  /** Of the last measurement, by a clock that nobody sets. */
  measuredAt: number;
  toldAt: number;
  /** One measurement after the other. */
  turn: Promise<void>;
}

export interface MeterOptions {
  /** The totals on disk. */
  file: string;
  settings: UsageSettings;
  log: AgentLog;
}

/**
 * Measures what processes use, from outside of them: how long each life runs and the counter of its group. Totals are on disk
 * before they are told, so that a killed agent loses at most what came after the last reading, and nothing counts twice.
 */
export class UsageMeter {
  private readonly records: RecordLog<LifeRecord>;
  private readonly running = new Map<string, Running>();
  private timer: NodeJS.Timeout | null = null;
  private teller: UsageTeller | null = null;
  private sampling: Promise<void> = Promise.resolve();
  private readonly writing = new Set<Promise<void>>();
  private stopped = false;

  constructor(private readonly options: MeterOptions) {
    this.records = new RecordLog(options.file, true);
  }

  /**
   * Reads what an earlier agent left, groups that it did not remove included; before anything removes them.
   * @param read the counter of the group of this name; null when it is gone
   */
  async recover(read: (group: string) => Promise<number | null>): Promise<void> {
    await this.records.start();
    const { bucketMs } = this.options.settings;
    for (const record of [...this.records.records.values()]) {
      if (record.ended) continue;
      const reading = record.counted ? await read(record.id) : null;
      if (reading !== null && reading > record.cpu_us) {
        // It lived for at least as long as it needed for what it used since; longer nobody knows.
        const needed = Math.ceil((reading - record.cpu_us) / 1_000 / Math.max(record.vcpu, 1));
        const ms = Math.max(0, Math.min(needed, Date.now() - record.at));
        advance(record, bucketMs, { to: record.at + ms, ms, reading });
      } else if (record.cpu_at < record.at) blind(record, bucketMs);
      finish(record);
      await this.keepEnded(record);
    }
  }

  /** Begins to measure and to tell. */
  follow(
    send: (report: UsageReport, signal: AbortSignal) => Promise<UsageTaken>,
    onSuperseded: () => void,
  ): void {
    const { settings, log } = this.options;
    this.teller = new UsageTeller({
      ...{ send, log, onSuperseded, bucketSeconds: settings.bucketMs / 1_000 },
      source: {
        untold: (limit) => this.untold(limit),
        taken: (items) => this.taken(items),
      },
    });
    this.teller.kick();
    this.arm();
  }

  /** A process has been started. */
  begin(of: NewLife, read: ReadCpu): MeteredLife {
    const record = newLife(of, Date.now());
    const now = performance.now();
    const life: Running = { record, read, measuredAt: now, toldAt: now, turn: Promise.resolve() };
    this.running.set(of.id, life);
    // Not awaited: a start must not wait for the disk.
    life.turn = this.keep(record);
    let ending: Promise<void> | null = null;
    return { end: () => (ending ??= this.end(life)) };
  }

  /** Reads all counters now, as the timer does. */
  sample(): Promise<void> {
    this.sampling = this.sampling.then(async () => {
      await Promise.all([...this.running.values()].map((life) => this.measure(life)));
      this.teller?.kick();
    });
    return this.sampling;
  }

  /** Ends what still runs and tells it, at most for `ms`. Processes must have ended. */
  async stop(ms: number): Promise<void> {
    this.stopped = true;
    if (this.timer) clearTimeout(this.timer);
    await this.sampling;
    await Promise.all([...this.running.values()].map((life) => this.end(life)));
    this.teller?.kick();
    await this.teller?.stop(ms);
    await Promise.all(this.writing);
  }

  /** Totals that wait to be told: what is final at once, of lives that go on now and then. */
  private untold(limit: number): LifeUsage[] {
    const items: LifeUsage[] = [];
    const now = performance.now();
    for (const record of this.records.records.values()) {
      const life = this.running.get(record.id);
      const due = !life || now - life.toldAt >= this.options.settings.reportMs;
      for (const bucket of record.buckets) {
        if (bucket.told >= bucket.seq || !(due || bucket.final)) continue;
        items.push(told(record, bucket));
        if (items.length === limit) return items;
      }
    }
    return items;
  }

  private taken(items: readonly LifeUsage[]): void {
    for (const { life: id, hour, seq } of items) {
      const record = this.records.records.get(id);
      const bucket = record?.buckets.find(({ start }) => start === Date.parse(hour));
      if (!record || !bucket) continue;
      bucket.told = Math.max(bucket.told, seq);
      const life = this.running.get(id);
      if (life) life.toldAt = performance.now();
      if (forget(record, this.options.settings.bucketMs)) void this.written(this.records.delete(id));
    }
  }

  private measure(life: Running): Promise<void> {
    life.turn = life.turn.then(async () => {
      if (life.record.ended) return;
      await this.note(life);
      await this.keep(life.record);
    });
    return life.turn;
  }

  private end(life: Running): Promise<void> {
    const { record } = life;
    life.turn = life.turn.then(async () => {
      if (record.ended) return;
      const reading = await this.note(life);
      if (reading === null && record.counted) blind(record, this.options.settings.bucketMs);
      finish(record);
      await this.keepEnded(record);
      this.running.delete(record.id);
      this.teller?.kick();
    });
    return life.turn;
  }

  private async note(life: Running): Promise<number | null> {
    const reading = await life.read().catch(() => null);
    const ms = Math.round(performance.now() - life.measuredAt);
    life.measuredAt += ms;
    advance(life.record, this.options.settings.bucketMs, { to: Date.now(), ms, reading });
    return reading;
  }

  /** One that used nothing has nothing to tell. */
  private keepEnded(record: LifeRecord): Promise<void> {
    const over = forget(record, this.options.settings.bucketMs);
    return over ? this.written(this.records.delete(record.id)) : this.keep(record);
  }

  private keep(record: LifeRecord): Promise<void> {
    return this.written(this.records.set(record));
  }

  private written(change: Promise<void>): Promise<void> {
    const done = change
      .catch((error: unknown) => {
        // The totals in memory go on, and the next change writes them whole.
        this.options.log.error({ error: String(error) }, 'usage could not be kept on disk');
      })
      .finally(() => this.writing.delete(done));
    this.writing.add(done);
    return done;
  }

  /** Next at the end of the interval or of the bucket, whichever comes first: at its end nothing has to be shared out. */
  private arm(): void {
    if (this.stopped) return;
    const { sampleMs, bucketMs } = this.options.settings;
    const wait = Math.min(sampleMs, bucketMs - (Date.now() % bucketMs) + 1);
    this.timer = setTimeout(() => void this.sample().finally(() => this.arm()), wait);
    this.timer.unref();
  }
}
