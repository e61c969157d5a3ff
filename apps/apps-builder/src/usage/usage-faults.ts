import { Inject, Injectable } from '@nestjs/common';
import { METRICS } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';

/** `unmeasured`: a part of an hour whose processor time is free; `refused`, `cut`: totals that cannot be. */
export type UsageFault = 'unmeasured' | 'refused' | 'cut';

/** Counts what was not charged as it was used, for an alert: each is the operator's loss. */
@Injectable()
export class UsageFaults {
  private readonly add: (labels: { fault: string }, by: number) => void;

  constructor(@Inject(METRICS) metrics: Metrics) {
    const add = metrics.counter(
      'nebo_usage_faults_total',
      'Use of apps that was not measured, refused or cut',
      ['fault'],
    );
    this.add = (labels, by) => add(labels, by);
  }

  count(fault: UsageFault, by = 1): void {
    if (by > 0) this.add({ fault }, by);
  }
}
