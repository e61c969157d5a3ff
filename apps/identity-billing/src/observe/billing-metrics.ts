import { Inject, Injectable } from '@nestjs/common';
import { METRICS } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';

/** Figures of this service, for the operator's alarms. */
@Injectable()
export class BillingMetrics {
  /** Differences that the newest reconciliation found; anything above zero is an alarm. */
  readonly ledgerDifferences: (value: number) => void;
  /** Unix seconds; an alarm when it grows old. */
  readonly reconciledAt: (value: number) => void;

  /** Slices past their term: money that waits for its router or for the operator. */
  readonly frozenSlices: (value: number) => void;
  /** Rubles that routers settled and no money was left for. */
  readonly settlementsLost: (rubles: number) => void;
  /** Settlements by what became of them. */
  readonly settlements: (outcome: 'settled' | 'refused', count: number) => void;

  constructor(@Inject(METRICS) private readonly metrics: Metrics) {
    this.ledgerDifferences = metrics.gauge(
      'nebo_ledger_differences',
      'Differences found by the newest reconciliation of the ledger',
    );
    this.reconciledAt = metrics.gauge(
      'nebo_ledger_reconciled_at_seconds',
      'When the ledger was last compared, Unix time',
    );
    this.frozenSlices = metrics.gauge(
      'nebo_slices_frozen',
      'Slices of routers that were not heard of in time',
    );
    const lost = metrics.counter(
      'nebo_settlements_lost_rubles_total',
      'Settled by routers with no money left for it: the operator’s loss',
    );
    this.settlementsLost = (rubles) => lost({}, rubles);
    const settlements = metrics.counter('nebo_settlements_total', 'Ends of requests by what became of them', [
      'outcome',
    ]);
    this.settlements = (outcome, count) => settlements({ outcome }, count);
  }

  /** Failed rounds of the background workers. */
  failure(where: string): void {
    this.metrics.failure(where);
  }
}
