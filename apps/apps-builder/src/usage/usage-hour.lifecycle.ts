import { Injectable } from '@nestjs/common';
import type { ComputeUsageRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';
import { Settings } from '../shared/settings.js';
import { UsageFaults } from './usage-faults.js';
import { loadHour, makePart, type UsageHour } from './usage.rows.js';

/**
 * Life of an hour that was used: counting → sending → settled. It is charged once it is over and all of it was reported, or when
 * the time for that is over: then its processor time is free. What comes later makes another part; a part that is made never
 * changes, and names itself, so that a repeat after a lost answer charges nothing twice.
 */
@Injectable()
export class UsageHourLifecycle extends Lifecycle<UsageHour> {
  override readonly kind = 'usage_hour';

  constructor(
    private readonly peers: Peers,
    private readonly settings: Settings,
    private readonly faults: UsageFaults,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<UsageHour | null> {
    return loadHour(tx, id, this.settings.usageLateMs);
  }

  @State()
  counting(hour: UsageHour): Outcome {
    if (hour.closes_in > 0) return this.wait(hour.closes_in);
    if (!hour.complete && hour.late_in > 0)
      return this.wait(hour.late_in, 'the region has not reported all of this hour');
    return this.go('sending', (tx) => makePart(tx, hour.id));
  }

  @State()
  async sending(hour: UsageHour): Promise<Outcome> {
    const { id, account_id, app_id, kind, part } = hour;
    if (part === null) return this.go('settled');
    const at = new Date(hour.starts_at).toISOString();
    const { cpu_us, memory_mb_ms, free, description } = part;
    const operation_id = `usage:${app_id}:${kind}:${at}:${part.part}`;
    const body: ComputeUsageRequest = {
      ...{ operation_id, account_id, app_id, kind, hour: at },
      ...{ cpu_us, memory_mb_ms, free, description },
    };
    await this.peers.call('identity-billing', '/internal/v1/money/compute-usage', {
      account: account_id,
      body,
      operationId: operation_id,
    });
    if (free === 'cpu_unmeasured') this.faults.count('unmeasured');
    return this.go('sending', (tx) =>
      tx.query('update usage_part set sent_at = now() where hour_id = $1::uuid and part = $2::int', [
        id,
        part.part,
      ]),
    );
  }

  @State()
  settled(hour: UsageHour): Outcome {
    if (hour.changed) return this.go('counting');
    return this.end(async (tx) => {
      // Held against a report: one that came between is seen here, one that comes after finds that this life has ended.
      const [row] = await tx.query<{ changed: boolean }>(
        'select changed from usage_hour where id = $1::uuid for update',
        [hour.id],
      );
      if (row?.changed) throw new Error('more was reported meanwhile');
    });
  }
}
