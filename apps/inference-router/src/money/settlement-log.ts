import type { SliceSettlement } from '@nebo/contracts';
import type { Logger } from 'pino';
import type { LogDisk, LogFile } from './log-disk.js';
import type { MoneyMetrics } from './money-metrics.js';
import { lineOf, readSegment } from './settlement-line.js';

/** A segment of this size is full; it is made so large. Bytes. */
const segmentSize = 4 * 1024 * 1024;
/** Most settlements of one write; each is less than a kilobyte. */
const mostOfWrite = 1_024;
/** Most turns of the event loop that a batch gathers for. */
const mostTurns = 6;
const namePattern = /^settlements-(\d{12})\.log$/;
const nameOf = (number: number) => `settlements-${String(number).padStart(12, '0')}.log`;

/** A file of the log. It goes when all that stands in it is acknowledged. */
export interface Segment {
  readonly name: string;
  /** Settlements that are not acknowledged. */
  open: number;
  /** Nothing is appended any more. */
  closed: boolean;
  /** Holds damaged lines, which the operator may want to see. */
  corrupt: boolean;
}

interface Pending {
  settlement: SliceSettlement;
  resolve(segment: Segment): void;
  reject(error: unknown): void;
}

/** A segment that is being written, or is ready to be. */
interface OpenSegment {
  segment: Segment;
  file: LogFile;
  /** Bytes that were written. */
  size: number;
}

/**
 * Settlements on the disk of this router before the last byte of their answers leaves: an append-only log in segments. One
 * write through to the disk serves all that wait (group commit); while they run, the next batch gathers. A segment is never
 * appended to by another process: a torn end stays an end.
 */
export class SettlementLog {
  private pending: Pending[] = [];
  private writing: Promise<void> | undefined;
  private current: OpenSegment | null = null;
  /** The one after this, made while this one is being filled: to make one takes a while. Null where that failed. */
  private following: Promise<OpenSegment | null> | null = null;
  private next = 1;
  /** Why the last write failed; null: it did not. */
  failure: Error | null = null;

  constructor(
    private readonly disk: LogDisk,
    private readonly log: Pick<Logger, 'info' | 'warn' | 'error'>,
    private readonly metrics: Pick<MoneyMetrics, 'batch' | 'sync' | 'failure'>,
    private readonly size = segmentSize,
  ) {}

  /** What former processes left: call once, before the first append. */
  async replay(): Promise<{ settlement: SliceSettlement; segment: Segment }[]> {
    const found: { settlement: SliceSettlement; segment: Segment }[] = [];
    const names = (await this.disk.list()).filter((name) => namePattern.test(name)).sort();
    for (const name of names) {
      this.next = Number(namePattern.exec(name)![1]) + 1;
      const { settlements, corrupt, torn } = readSegment(await this.disk.read(name));
      const segment: Segment = {
        name,
        open: settlements.length,
        closed: true,
        corrupt: corrupt.length > 0,
      };
      if (torn > 0)
        this.log.warn({ segment: name, bytes: torn }, 'the end of a settlement log is torn, it is cut off');
      if (corrupt.length > 0) {
        this.metrics.failure('log');
        this.log.error(
          { segment: name, lines: corrupt },
          'LINES OF A SETTLEMENT LOG ARE DAMAGED and cannot be charged; the segment is kept as .corrupt',
        );
      }
      for (const settlement of settlements) found.push({ settlement, segment });
      if (settlements.length === 0) await this.finish(segment);
    }
    return found;
  }

  /**
   * Makes a settlement durable. @returns the segment that it stands in; tell `acknowledged` of it later
   * @throws what the disk says; nothing of it stands in the log then, as far as the disk allows
   */
  append(settlement: SliceSettlement): Promise<Segment> {
    return new Promise((resolve, reject) => {
      this.pending.push({ settlement, resolve, reject });
      this.writing ??= this.writeAll();
    });
  }

  /** One settlement of a segment is acknowledged, or will never be. */
  async acknowledged(segment: Segment): Promise<void> {
    segment.open -= 1;
    if (segment.open > 0) return;
    if (segment.closed) await this.finish(segment);
    else if (!this.writing && (this.current?.size ?? 0) > this.size / 2) await this.closeSegment();
  }

  /** Waits for what is being written; removes the last segment when nothing stands in it any more. */
  async close(): Promise<void> {
    await this.writing;
    await this.closeSegment();
    this.current = (await this.following) ?? null;
    this.following = null;
    await this.closeSegment();
  }

  private async writeAll(): Promise<void> {
    try {
      while (this.pending.length > 0) {
        await this.gather();
        const batch = this.pending.splice(0, mostOfWrite);
        try {
          const segment = await this.write(batch);
          for (const { resolve } of batch) resolve(segment);
        } catch (error) {
          this.failure = error as Error;
          this.metrics.failure('log');
          this.log.error(
            { err: error, settlements: batch.length },
            'settlements cannot be written to the log',
          );
          for (const { reject } of batch) reject(error);
        }
      }
    } finally {
      this.writing = undefined;
    }
  }

  /**
   * Lets a batch grow as long as each turn of the event loop brings more of it: one that ends alone is written at once,
   * and under load, where the way to the disk costs more than the writing, several share it.
   */
  private async gather(): Promise<void> {
    for (let turn = 0; turn < mostTurns; turn += 1) {
      const before = this.pending.length;
      await new Promise(setImmediate);
      if (turn > 0 && this.pending.length === before) return;
    }
  }

  private async write(batch: readonly Pending[]): Promise<Segment> {
    const current = (this.current ??= await this.begin());
    const { size: at, segment } = current;
    const bytes = Buffer.from(batch.map(({ settlement }) => lineOf(settlement, at)).join(''));
    const begun = performance.now();
    try {
      await current.file.write(bytes, at);
    } catch (error) {
      // Half a line must not stand before whole ones, nor a settlement in the log that its client was told is free.
      await current.file.truncate(at).catch((err: unknown) => {
        this.log.error({ err, segment: segment.name }, 'a failed write could not be taken back');
      });
      await this.closeSegment();
      throw error;
    }
    this.metrics.batch(batch.length);
    this.metrics.sync((performance.now() - begun) / 1_000);
    this.failure = null;
    current.size += bytes.length;
    segment.open += batch.length;
    if (current.size >= this.size) await this.closeSegment();
    else if (current.size > this.size / 2) this.following ??= this.create().catch(() => null);
    return segment;
  }

  private async begin(): Promise<OpenSegment> {
    const { following } = this;
    this.following = null;
    return (await following) ?? this.create();
  }

  private async create(): Promise<OpenSegment> {
    const name = nameOf(this.next);
    this.next += 1;
    const file = await this.disk.create(name, this.size);
    return { segment: { name, open: 0, closed: false, corrupt: false }, file, size: 0 };
  }

  private async closeSegment(): Promise<void> {
    const { current } = this;
    if (!current) return;
    this.current = null;
    current.segment.closed = true;
    await current.file
      .close()
      .catch((err: unknown) => this.log.warn({ err }, 'a segment could not be closed'));
    if (current.segment.open === 0) await this.finish(current.segment);
  }

  private async finish({ name, corrupt }: Segment): Promise<void> {
    try {
      if (corrupt) await this.disk.rename(name, `${name}.corrupt`);
      else await this.disk.remove(name);
    } catch (err) {
      // It is delivered again after the next start, which changes nothing.
      this.log.warn({ err, segment: name }, 'a segment of the settlement log could not be removed');
    }
  }
}
