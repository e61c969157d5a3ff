import { Inject, Injectable } from '@nestjs/common';
import { METRICS } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';

/** States of the money in slices. */
export type SliceShare = 'free' | 'held' | 'owed';

/** Figures of the money side, for the operator. */
@Injectable()
export class MoneyMetrics {
  private readonly refusals: (labels: { reason: string }) => void;
  private readonly takes: (labels: { result: string }) => void;
  private readonly failed: (labels: { step: string }) => void;
  /** Requests whose worst case is held now. */
  readonly holds: (count: number) => void;
  /** Rubles of all slices; rounded, for a graph only. */
  readonly slices: (rubles: number, labels: { share: SliceShare }) => void;
  /** Settlements that one write made durable. */
  readonly batch: (settlements: number) => void;
  /** Seconds of one write with its fdatasync. */
  readonly sync: (seconds: number) => void;
  /** Settlements that identity-billing has not acknowledged. */
  readonly undelivered: (count: number) => void;

  constructor(@Inject(METRICS) metrics: Pick<Metrics, 'counter' | 'gauge' | 'histogram'>) {
    this.refusals = metrics.counter('nebo_inference_refusals_total', 'Requests without money, by reason', [
      'reason',
    ]);
    this.takes = metrics.counter('nebo_inference_slice_takes_total', 'Calls for more money, by result', [
      'result',
    ]);
    this.failed = metrics.counter(
      'nebo_inference_settlement_failures_total',
      'Failed steps of settlements: log, direct, delivery, refused',
      ['step'],
    );
    this.holds = metrics.gauge('nebo_inference_holds', 'Running requests whose worst case is held');
    this.slices = metrics.gauge('nebo_inference_slice_rubles', 'Money in slices of this router', ['share']);
    this.batch = metrics.histogram(
      'nebo_inference_log_batch',
      'Settlements per write of the log',
      [],
      [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    );
    this.sync = metrics.histogram(
      'nebo_inference_log_sync_seconds',
      'Time of a write of the log with fdatasync',
      [],
      [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2],
    );
    this.undelivered = metrics.gauge(
      'nebo_inference_undelivered_settlements',
      'Settlements that identity-billing has not acknowledged',
    );
  }

  /** A request was refused for want of money (`insufficient_balance`, …), or because billing is away. */
  refusal(reason: string): void {
    this.refusals({ reason });
  }

  /** A call for more money ended: `granted`, a code, or `failed`. */
  take(result: string): void {
    this.takes({ result });
  }

  failure(step: 'log' | 'direct' | 'delivery' | 'refused'): void {
    this.failed({ step });
  }
}
