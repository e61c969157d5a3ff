import { Inject, Injectable } from '@nestjs/common';
import { METRICS } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';
import type { MissedCause } from './job.rows.js';

/** Counts ticks that led to no run, for an alert: a schedule that stands still must not go unnoticed. */
@Injectable()
export class MissedTicks {
  private readonly add: (labels: { cause: string }, by: number) => void;

  constructor(@Inject(METRICS) metrics: Metrics) {
    const add = metrics.counter('nebo_job_ticks_missed_total', 'Ticks of job schedules that led to no run', [
      'cause',
    ]);
    this.add = (labels, by) => add(labels, by);
  }

  /** Adds ticks by cause, once their rows are committed. */
  count(missed: ReadonlyMap<MissedCause, number>): void {
    for (const [cause, ticks] of missed) this.add({ cause }, ticks);
  }
}
