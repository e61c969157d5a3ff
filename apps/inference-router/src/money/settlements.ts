import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import {
  type Nano,
  type PriceRef,
  type SliceRecall,
  type SliceSettlement,
  sliceRecall,
  type UsageFacts,
} from '@nebo/contracts';
import type { Subscription } from '@nebo/bus';
import { ApiError, billingUnavailable, HealthRegistry, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Cancel } from '../completions/cancel.js';
import { Billing } from './billing.js';
import { Clock } from './clock.js';
import { Delivery } from './delivery.js';
import { FolderDisk, type LogDisk } from './log-disk.js';
import { MoneyMetrics } from './money-metrics.js';
import type { Hold } from './purse.js';
import { Purses } from './purses.js';
import { MoneyRefused } from './refusals.js';
import { RouterFolder } from './router-folder.js';
import { SettlementLog } from './settlement-log.js';

/** How long a stop waits for identity-billing to take what is left. Milliseconds. */
const stopPatience = 1_500;
const longestRetry = 2_000;

/** What a request holds money for. */
export interface Terms {
  /** Names the request in the ledger. */
  operationId: string;
  account: string;
  key: string;
  /** The key has a monthly limit. */
  isLimited: boolean;
  /** Worst case, 10⁻⁹ rubles. */
  amount: Nano;
  description: string;
  /** Versions of the prices that the amount was made from. */
  prices: readonly PriceRef[];
}

/** A request whose worst case is held; ends with `capture` or `giveBack`. */
export interface Reserved {
  readonly terms: Terms;
  readonly hold: Hold;
}

/** Injection token of the disk that the settlement log is written to; tests bring one that fails. */
export const LOG_DISK = Symbol('nebo:log-disk');

/** The log's disk: the folder of this router. */
export const logDisk = (folder: RouterFolder): LogDisk => new FolderDisk(folder.path);

/**
 * The money of requests, without a database or a call on their way: the worst case is held from a purse in memory, the
 * charge is a line on this router's disk before the last byte, and reaches identity-billing within a moment, once. A
 * process killed at any point leaves lines, which the next one delivers before it opens, and slices, which then come free.
 */
@Injectable()
export class Settlements implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly log: SettlementLog;
  private readonly delivery: Delivery;
  private opening: Promise<void> | undefined;
  private isReplayed = false;
  private retry: NodeJS.Timeout | undefined;
  private recalls: Subscription | undefined;
  private endFigures: (() => void) | undefined;
  private stopped = false;

  constructor(
    private readonly folder: RouterFolder,
    private readonly purses: Purses,
    private readonly billing: Billing,
    private readonly clock: Clock,
    private readonly metrics: MoneyMetrics,
    @Inject(LOG_DISK) disk: LogDisk,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log' | 'bus' | 'figures'>,
    health: HealthRegistry,
  ) {
    const { log } = runtime;
    this.log = new SettlementLog(disk, log, metrics);
    this.delivery = new Delivery(folder.routerId, billing, this.log, clock, log, metrics);
    health.add('money', () => ({ ok: purses.isOpen, required: true, detail: this.detail() }));
    health.add('settlement log', () => ({
      ok: this.log.failure === null,
      required: false,
      detail: this.log.failure?.message ?? `${this.delivery.waiting} settlements to be delivered`,
    }));
  }

  async onApplicationBootstrap(): Promise<void> {
    this.recalls = await this.runtime.bus.subscribeAll(sliceRecall.subject, (event) =>
      this.purses.recall(event.data as SliceRecall),
    );
    this.endFigures = this.runtime.figures.beforeScrape(async () => this.showFigures());
    this.openSoon(100);
  }

  /** Delivers what there is and gives all slices back; after a `kill -9` the next start does both. */
  async beforeApplicationShutdown(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.retry);
    await this.opening?.catch(() => undefined);
    await this.recalls?.close();
    this.endFigures?.();
    try {
      if (this.isReplayed) await this.delivery.drain(stopPatience);
      await this.delivery.stop();
      await this.log.close();
      await this.purses.close();
    } catch (err) {
      this.runtime.log.warn({ err }, 'not all money could be given back; the next start frees it');
    }
    await this.folder.release();
  }

  /**
   * Holds the worst case of a request: at once where its slice covers it.
   * @param gone cancelled when the client has left; a request that waits for money is dropped then
   * @throws MoneyRefused when it cannot be covered; ApiError 503 `billing_unavailable` when nobody can tell
   */
  async reserve(terms: Terms, gone?: Cancel): Promise<Reserved> {
    try {
      if (this.stopped) throw billingUnavailable(new Error('the service is being stopped'));
      if (!this.purses.isOpen) await this.open();
      const key = terms.isLimited ? terms.key : null;
      const hold = this.purses.hold(terms.account, terms.amount, key, gone);
      return { terms, hold: hold instanceof Promise ? await hold : hold };
    } catch (error) {
      const isKnown = error instanceof MoneyRefused || error instanceof ApiError;
      this.metrics.refusal(isKnown ? error.code : 'failed');
      throw error;
    }
  }

  /**
   * Settles a request. When this returns, the charge is on the disk of this router, or in the ledger.
   * @throws ApiError 503 when neither was possible; nothing is charged then
   */
  async capture({ terms, hold }: Reserved, amount: Nano, usage: UsageFacts): Promise<void> {
    const settlement: SliceSettlement = {
      operation_id: terms.operationId,
      account_id: terms.account,
      key_id: terms.key,
      slice_id: hold.slice.id,
      ...(hold.keySlice ? { key_slice_id: hold.keySlice.id } : {}),
      month: hold.month,
      amount: amount.toString(),
      description: terms.description,
      prices: [...terms.prices],
      usage,
      at: this.clock.date().toISOString(),
    };
    let segment;
    try {
      segment = await this.log.append(settlement);
    } catch {
      // The log has told why. Without it only the ledger itself can keep the charge.
      return this.captureDirectly(settlement, { terms, hold }, amount);
    }
    this.purses.end(hold, amount);
    this.delivery.add(settlement, hold, segment);
  }

  /** Ends a request without a charge. */
  giveBack({ hold }: Reserved): void {
    this.purses.end(hold, 0n);
  }

  private async captureDirectly(
    settlement: SliceSettlement,
    { hold }: Reserved,
    amount: Nano,
  ): Promise<void> {
    this.purses.end(hold, amount);
    try {
      await this.delivery.direct(settlement, hold);
    } catch (cause) {
      this.metrics.failure('direct');
      // Perhaps it was charged and only the answer was lost: that money is not used before the slice was asked about.
      hold.purse.acknowledge(hold, amount, true);
      hold.slice.askAgain();
      hold.keySlice?.askAgain();
      throw billingUnavailable(cause);
    }
  }

  /** Replays the log, delivers it, begins a life at identity-billing; one attempt, shared by all that wait for it. */
  private open(): Promise<void> {
    if (this.purses.isFenced || this.stopped)
      return Promise.reject(billingUnavailable(new Error('this router is fenced or being stopped')));
    this.opening ??= this.openNow().finally(() => (this.opening = undefined));
    return this.opening;
  }

  private async openNow(): Promise<void> {
    if (this.purses.isOpen) return;
    if (!this.isReplayed) {
      const left = await this.log.replay();
      for (const { settlement, segment } of left) this.delivery.add(settlement, null, segment);
      this.isReplayed = true;
      if (left.length > 0)
        this.runtime.log.info({ settlements: left.length }, 'settlements of a former life');
    }
    try {
      if (!(await this.delivery.drain(1_000))) throw new Error(this.detail());
      const { epoch } = await this.billing.open({ router_id: this.folder.routerId });
      this.purses.open({ router_id: this.folder.routerId, epoch });
      this.runtime.log.info({ router: this.folder.routerId, epoch }, 'money is open');
    } catch (cause) {
      throw billingUnavailable(cause);
    }
  }

  private openSoon(wait: number): void {
    this.open().catch((err: unknown) => {
      if (this.stopped || this.purses.isFenced) return;
      this.runtime.log.debug({ err }, 'the router is not open yet');
      this.retry = setTimeout(() => this.openSoon(Math.min(wait * 2, longestRetry)), wait).unref();
    });
  }

  private detail(): string {
    if (this.purses.isFenced) return 'another process has begun as this router: end this one';
    if (this.purses.isOpen) return 'open';
    const { waiting, trouble } = this.delivery;
    const why = trouble ? ` (${trouble})` : '';
    return waiting > 0
      ? `${waiting} settlements of a former life are to be delivered first${why}`
      : 'identity-billing has not opened this router yet';
  }

  private showFigures(): void {
    const rubles = (amount: Nano) => Number(amount) / 1e9;
    const { free, held, owed } = this.purses.sums();
    this.metrics.holds(this.purses.holds);
    this.metrics.undelivered(this.delivery.waiting);
    this.metrics.slices(rubles(free), { share: 'free' });
    this.metrics.slices(rubles(held), { share: 'held' });
    this.metrics.slices(rubles(owed), { share: 'owed' });
  }
}
