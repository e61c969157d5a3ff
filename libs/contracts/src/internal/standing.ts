/**
 * `GET /internal/v1/standing` at identity-billing: every account that has nothing left while something is charged to it by
 * time or owed by it. All others are in order. Who runs something for accounts compares with it now and then: the events
 * `balance.empty`, `account.suspended` and `account.resumed` only say that it is time to.
 */
export interface AccountStanding {
  account_id: string;
  /**
   * `empty`: nothing is left. `suspended`: for longer than NEBO_GRACE_HOURS; what runs is stopped, and kept. `forfeited`:
   * suspended for longer than NEBO_KEEP_DAYS; what was kept is removed.
   */
  state: 'empty' | 'suspended' | 'forfeited';
  /** Since when nothing is left. */
  since: string;
}
