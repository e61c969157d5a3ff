-- Settlements live in the log on the router's disk now (docs/decisions/013-settlement-log.md). No release ever had this
-- table, and its open rows were only leases of requests that were running: there is nothing in it to carry over.
drop table settlement;

-- What each key spent in a calendar month (UTC), and about what it took by leaving before its counters came. Amounts are
-- 10⁻⁹ rubles. For drain mode only: the ledger of identity-billing is the truth about money.
create table key_month (
  key_id uuid not null,
  account_id uuid not null,
  -- `2026-11`
  month text not null,
  spent bigint not null default 0,
  forgone bigint not null default 0,
  aborts bigint not null default 0,
  primary key (key_id, month)
);
alter table key_month enable row level security;
alter table key_month force row level security;
create policy key_month_account on key_month using (
  nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
