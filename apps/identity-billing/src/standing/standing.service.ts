import { Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { AccountStanding } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { says } from '../events.js';
import { Settings } from '../settings.js';

/** Accounts that one transaction changes: their balances are held until it ends. */
const atOnce = 100;

interface Change {
  account_id: string;
  /** Null: nobody needs to hear of it. */
  change: 'low' | 'empty' | 'suspended' | 'resumed' | null;
  available: bigint;
}

const events = {
  low: says.balanceLow,
  empty: says.balanceEmpty,
  suspended: says.accountSuspended,
  resumed: says.accountResumed,
} as const;

/**
 * Who has nothing left, and since when. The table is the truth, compared with the balances now and then and after each
 * deposit; events are hints that it has changed.
 */
@Injectable()
export class StandingService {
  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
  ) {}

  /**
   * Compares the standing of accounts with their money. Every replica may run it: one works, and a change is said once.
   * @param account null: all
   * @returns how many changes there were
   */
  async sweep(account: string | null = null): Promise<number> {
    for (let total = 0; ;) {
      const { changes, accounts } = await this.round(account);
      total += changes;
      if (accounts < atOnce) return total;
    }
  }

  private round(account: string | null): Promise<{ changes: number; accounts: number }> {
    const { balanceLow, graceHours } = this.settings;
    return this.database.transaction(async (tx) => {
      const rows = await tx.query<Change>(
        'select account_id, change, available from standing_sweep($1::uuid, $2::bigint, $3::int, $4::int)',
        [account, balanceLow.toString(), graceHours, atOnce],
      );
      const said = rows.filter(({ change }) => change !== null);
      for (const { account_id, change, available } of said)
        await say(tx, events[change!]({ available: available.toString() }, { account: account_id }));
      return { changes: said.length, accounts: new Set(rows.map(({ account_id }) => account_id)).size };
    });
  }

  /** The accounts that are not in order, by id. */
  list(): Promise<AccountStanding[]> {
    return this.database.transaction(async (tx) => {
      const rows = await tx.query<Omit<AccountStanding, 'since'> & { since: Date }>(
        `select account_id, empty_since as since, case when suspended_at is null then 'empty'
           when suspended_at <= now() - make_interval(days => $1::int) then 'forfeited' else 'suspended' end as state
         from account_standing where empty_since is not null order by account_id`,
        [this.settings.keepDays],
      );
      return rows.map((row) => ({ ...row, since: row.since.toISOString() }));
    });
  }
}
