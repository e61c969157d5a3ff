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

  constructor(@Inject(METRICS) private readonly metrics: Metrics) {
    this.ledgerDifferences = metrics.gauge(
      'nebo_ledger_differences',
      'Differences found by the newest reconciliation of the ledger',
    );
    this.reconciledAt = metrics.gauge(
      'nebo_ledger_reconciled_at_seconds',
      'When the ledger was last compared, Unix time',
    );
  }

  /** Failed rounds of the background workers. */
  failure(where: string): void {
    this.metrics.failure(where);
  }
}
