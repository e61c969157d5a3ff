import { Controller, Get, Header, Injectable } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { createMetrics } from '@nebo/telemetry';

/** Figures of this service, for the operator's alarms. */
@Injectable()
export class BillingMetrics {
  private readonly metrics = createMetrics('identity-billing');
  /** Differences that the newest reconciliation found; anything above zero is an alarm. */
  readonly ledgerDifferences = this.metrics.gauge(
    'nebo_ledger_differences',
    'Differences found by the newest reconciliation of the ledger',
  );
  /** Unix seconds; an alarm when it grows old. */
  readonly reconciledAt = this.metrics.gauge(
    'nebo_ledger_reconciled_at_seconds',
    'When the ledger was last compared, Unix time',
  );
  /** Failed rounds of the background workers. */
  readonly failure = (where: string) => this.metrics.failure(where);

  text(): Promise<string> {
    return this.metrics.text();
  }
}

/** `GET /metrics` of the service's own port; the gateway forwards no such path. */
@ApiExcludeController()
@Controller()
export class MetricsController {
  constructor(private readonly metrics: BillingMetrics) {}

  @Get('metrics')
  @Header('content-type', 'text/plain; version=0.0.4; charset=utf-8')
  read(): Promise<string> {
    return this.metrics.text();
  }
}
