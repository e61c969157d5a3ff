import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { BillingMetrics } from '../observe/billing-metrics.js';
import { RateService } from '../rate/rate.service.js';
import { Settings } from '../settings.js';
import { SlicesService } from '../slices/slices.service.js';
import { StandingService } from '../standing/standing.service.js';
import { MoneyService } from './money.service.js';
import { ReconcileService } from './reconcile.service.js';
import { SpansService } from './spans.service.js';

/** Milliseconds between two rounds of each worker. */
const rounds = { expire: 2_000, spans: 10_000, rate: 600_000, slices: 1_000 } as const;

/** What happens by the clock: expiry, hours of spans, reconciliation, pruning. Every replica may run all of it. */
@Injectable()
export class MoneyWorkers implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly timers: NodeJS.Timeout[] = [];
  private readonly running = new Set<Promise<void>>();

  constructor(
    private readonly money: MoneyService,
    private readonly spans: SpansService,
    private readonly reconcile: ReconcileService,
    private readonly rate: RateService,
    private readonly slices: SlicesService,
    private readonly standing: StandingService,
    private readonly settings: Settings,
    private readonly metrics: BillingMetrics,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  onApplicationBootstrap(): void {
    this.every(rounds.expire, 'expiry', async () => {
      while ((await this.money.expire()) === 100);
    });
    this.every(rounds.spans, 'spans', () => this.spans.chargeDue());
    this.every(this.settings.reconcileSeconds * 1_000, 'reconcile', () => this.reconcile.run());
    this.every(this.settings.standingSeconds * 1_000, 'standing', () => this.standing.sweep());
    this.every(rounds.slices, 'slices', () => this.slices.sweep());
    this.every(rounds.rate, 'rate windows', () => this.rate.prune());
  }

  private every(ms: number, name: string, work: () => Promise<unknown>): void {
    let busy = false;
    const round = async () => {
      if (busy) return;
      busy = true;
      try {
        await work();
      } catch (err) {
        // The database is away: the next round tries again, and health tells it meanwhile.
        this.metrics.failure(name);
        this.runtime.log.warn({ err, worker: name }, 'billing worker');
      } finally {
        busy = false;
      }
    };
    this.timers.push(
      setInterval(() => {
        const run = round();
        this.running.add(run);
        void run.finally(() => this.running.delete(run));
      }, ms).unref(),
    );
  }

  /** Waits for rounds at hand, so that none meets a closed pool. */
  async onModuleDestroy(): Promise<void> {
    for (const timer of this.timers) clearInterval(timer);
    await Promise.all(this.running);
  }
}
