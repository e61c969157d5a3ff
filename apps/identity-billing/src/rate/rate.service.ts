import { Injectable } from '@nestjs/common';
import type { RateLeaseRequest } from '@nebo/contracts';
import { Database } from '@nebo/persistence';

/** The counter of each key's window, one for all gateways. */
@Injectable()
export class RateService {
  constructor(private readonly database: Database) {}

  /**
   * Grants a block of a window in one guarded statement: the sum of what is granted never exceeds the quota, also when
   * gateways with different quotas ask during a change of settings.
   * @returns requests granted, 0 when the window is used up
   */
  async lease({ key_id, window_start, seconds = 86_400, quota, want }: RateLeaseRequest): Promise<number> {
    const [row] = await this.database.named<{ granted: bigint }>(
      'rate-lease',
      `insert into rate_window as w (key_id, window_start, granted, expires_at)
       values ($1, $2::bigint, least($3::bigint, $4::bigint), to_timestamp($2::bigint) + 2 * make_interval(secs => $5::integer))
       on conflict (key_id, window_start) do update
         set granted = greatest(w.granted, least(w.granted + $3::bigint, $4::bigint))
       returning new.granted - coalesce(old.granted, 0) as granted`,
      [key_id, window_start, want, quota, seconds],
    );
    return Number(row!.granted);
  }

  /** Forgets windows that are over. @returns how many */
  async prune(): Promise<number> {
    const rows = await this.database.query(
      'delete from rate_window where expires_at < now() returning 1 as gone',
    );
    return rows.length;
  }
}
