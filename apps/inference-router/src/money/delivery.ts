import type { Nano, SliceSettleAnswer, SliceSettlement } from '@nebo/contracts';
import { ApiError } from '@nebo/service-kit';
import type { Logger } from 'pino';
import type { Billing } from './billing.js';
import type { CallGate } from './call-gate.js';
import type { Clock } from './clock.js';
import type { MoneyMetrics } from './money-metrics.js';
import type { Hold } from './purse.js';
import type { Segment, SettlementLog } from './settlement-log.js';

/**
 * Settlements gather for so long, so that many are one call: a call costs the database about as much as twenty settlements in
 * it. Well within the second in which the balance shows them. Milliseconds.
 */
const gather = 200;
/** Settlements in one call. */
const mostAtOnce = 500;
/** First and longest wait after a failed call. Milliseconds. */
const firstWait = 100;
const longestWait = 5_000;

/** A settlement on its way. */
interface Parcel {
  settlement: SliceSettlement;
  amount: Nano;
  /** Null: of a former life, whose slices are gone. */
  hold: Hold | null;
  segment: Segment | null;
  /** A call failed that may have charged it all the same. */
  doubtful: boolean;
}

/**
 * Carries settlements from the log to identity-billing, in batches, again and again until each is acknowledged. One call at a
 * time; an account whose slices are being asked about waits for the next one (see CallGate).
 */
export class Delivery {
  private queue: Parcel[] = [];
  /** Operation ids of the running batch that are decided, although the batch as a whole may fail. */
  private readonly done = new Set<string>();
  private timer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private failures = 0;
  /** Settlements in the running call. */
  private onTheWay = 0;
  /** Words of the last failure; null: the last call went well. */
  trouble: string | null = null;

  constructor(
    private readonly routerId: string,
    private readonly billing: Pick<Billing, 'settle'>,
    private readonly settlements: SettlementLog,
    private readonly clock: Clock,
    private readonly log: Pick<Logger, 'warn' | 'error'>,
    private readonly metrics: Pick<MoneyMetrics, 'failure'>,
  ) {}

  /** Settlements that are not acknowledged. */
  get waiting(): number {
    return this.queue.length + this.onTheWay;
  }

  /** Queues a settlement that is durable. */
  add(settlement: SliceSettlement, hold: Hold | null, segment: Segment): void {
    const parcel = { settlement, amount: BigInt(settlement.amount), hold, segment, doubtful: false };
    this.queue.push(parcel);
    if (!this.running) this.schedule(gather);
  }

  /**
   * Charges a settlement that could not be written, without the log.
   * @throws when identity-billing has not charged it, as far as is known
   */
  async direct(settlement: SliceSettlement, hold: Hold): Promise<void> {
    const parcel = { settlement, amount: BigInt(settlement.amount), hold, segment: null, doubtful: false };
    while (!hold.purse.gate.beginSettle()) await this.clock.wait(1);
    try {
      const answer = await this.settle([parcel]);
      if (!answer.settled.includes(settlement.operation_id)) throw new Error('the settlement was refused');
      this.acknowledge(parcel, true);
    } finally {
      hold.purse.gate.endSettle();
    }
  }

  /**
   * Delivers until nothing waits or the time is over.
   * @param limit milliseconds
   * @returns whether nothing waits any more
   */
  async drain(limit: number): Promise<boolean> {
    const end = this.clock.now() + limit;
    for (;;) {
      await this.run();
      const left = end - this.clock.now();
      if (this.waiting === 0 || left <= 0) return this.waiting === 0;
      await this.clock.wait(Math.min(this.failures > 0 ? this.backOff() : 5, left));
    }
  }

  /** Ends the timer. What waits stays in the log. */
  async stop(): Promise<void> {
    clearTimeout(this.timer);
    await this.running;
    clearTimeout(this.timer);
  }

  private schedule(ms: number): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.run();
    }, ms).unref();
  }

  private backOff(): number {
    return Math.min(firstWait * 2 ** (this.failures - 1), longestWait);
  }

  private run(): Promise<void> {
    this.running ??= this.deliver().finally(() => {
      this.running = undefined;
      if (this.queue.length === 0) return;
      const full = this.failures === 0 && this.queue.length >= mostAtOnce;
      this.schedule(this.failures > 0 ? this.backOff() : full ? 0 : gather);
    });
    return this.running;
  }

  private async deliver(): Promise<void> {
    const gates = new Set<CallGate>();
    const batch = this.take(gates);
    if (batch.length === 0) return;
    let rest: Parcel[];
    this.onTheWay = batch.length;
    try {
      rest = await this.settleAll(batch);
      this.failures = 0;
      this.trouble = null;
    } catch (error) {
      this.failures += 1;
      this.trouble = (error as Error).message;
      this.metrics.failure('delivery');
      if (this.failures < 4)
        this.log.warn({ err: error, settlements: batch.length }, 'settlements wait for billing');
      rest = batch.filter(({ settlement }) => !this.done.delete(settlement.operation_id));
      for (const parcel of rest) parcel.doubtful = true;
    } finally {
      this.done.clear();
      this.onTheWay = 0;
      for (const gate of gates) gate.endSettle();
    }
    this.queue = [...rest, ...this.queue];
  }

  /** The next batch; accounts with a call about their slices are left out. */
  private take(gates: Set<CallGate>): Parcel[] {
    const batch: Parcel[] = [];
    const left: Parcel[] = [];
    for (const parcel of this.queue) {
      const gate = parcel.hold?.purse.gate;
      const isFree =
        batch.length < mostAtOnce && (!gate || gates.has(gate) || (gate.beginSettle() && gates.add(gate)));
      (isFree ? batch : left).push(parcel);
    }
    this.queue = left;
    return batch;
  }

  /** @returns what was not decided */
  private async settleAll(batch: Parcel[]): Promise<Parcel[]> {
    let answer: SliceSettleAnswer;
    try {
      answer = await this.settle(batch);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      // One of them makes the whole call wrong: halve until it stands alone.
      if (batch.length === 1) {
        this.refuse(batch[0]!, `${error.status} ${error.code}: ${error.message}`);
        return [];
      }
      const half = batch.length >> 1;
      return [...(await this.settleAll(batch.slice(0, half))), ...(await this.settleAll(batch.slice(half)))];
    }
    const settled = new Set(answer.settled);
    const refused = new Map(answer.refused.map(({ operation_id, reason }) => [operation_id, reason]));
    return batch.filter((parcel) => {
      const id = parcel.settlement.operation_id;
      const reason = refused.get(id);
      if (settled.has(id)) this.acknowledge(parcel, true);
      else if (reason !== undefined) this.refuse(parcel, reason);
      else return true;
      return false;
    });
  }

  private settle(batch: readonly Parcel[]): Promise<SliceSettleAnswer> {
    return this.billing.settle({
      router_id: this.routerId,
      settlements: batch.map(({ settlement }) => settlement),
    });
  }

  private refuse(parcel: Parcel, reason: string): void {
    this.metrics.failure('refused');
    this.log.error({ settlement: parcel.settlement, reason }, 'A SETTLEMENT WILL NEVER BE CHARGED');
    this.acknowledge(parcel, false);
  }

  private acknowledge({ settlement, amount, hold, segment, doubtful }: Parcel, isCharged: boolean): void {
    this.done.add(settlement.operation_id);
    hold?.purse.acknowledge(hold, amount, isCharged);
    if (doubtful) {
      // An amount that was told in between may have it subtracted already.
      hold?.slice.askAgain();
      hold?.keySlice?.askAgain();
    }
    if (segment) void this.settlements.acknowledged(segment);
  }
}

/**
 * Answers about what stands in the call, which no repeat will change. Others (404 of an older release behind the name, 401
 * after a wrong key) are trouble between the services: what is owed waits until it is over.
 */
const isRefusal = (error: unknown): error is ApiError =>
  error instanceof ApiError && [400, 413, 422].includes(error.status);
