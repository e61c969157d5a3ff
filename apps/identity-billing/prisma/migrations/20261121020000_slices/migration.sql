-- Slices: parts of an account's money, and of the monthly limits of its keys, that routers of inference hold requests from.
-- Every function takes its locks in the order router, balances (by account), then the rest: whoever changes a slice or a
-- key month holds its account's balance row, so that nothing else needs an order.

alter table balance
  -- The sum of the account's open slices. posted − held − leased is what can be granted.
  add column leased bigint not null default 0 check (leased >= 0);
alter table key_month
  -- The sum of the key's open slices of the month.
  add column leased bigint not null default 0 check (leased >= 0);

-- A router by its volume. The epoch rises with each life; what carries an older one is fenced.
create table router (
  router_id uuid primary key,
  epoch integer not null check (epoch > 0),
  opened_at timestamptz not null default clock_timestamp()
);

create table slice (
  id uuid primary key default gen_random_uuid(),
  account_id uuid not null references account (id),
  router_id uuid not null references router (router_id),
  epoch integer not null,
  -- Both set: a slice of that key's limit in that month (UTC, database time); both null: of the account's money.
  key_id uuid,
  month date,
  -- What the router may have held and settled but not delivered.
  amount bigint not null check (amount >= 0),
  -- How much of it was in use when the router last said so.
  in_use bigint not null default 0 check (in_use between 0 and amount),
  -- Rises with every take and return.
  version integer not null default 1,
  -- frozen: past its term; its money stays leased until the router is heard of again or the operator writes it off.
  state text not null default 'active' check (state in ('active', 'frozen', 'closed')),
  expires_at timestamptz not null,
  created_at timestamptz not null default clock_timestamp(),
  changed_at timestamptz not null default clock_timestamp(),
  check ((key_id is null) = (month is null)),
  check (state <> 'closed' or amount = 0)
);
create unique index slice_one on slice (router_id, epoch, account_id, key_id, month) nulls not distinct
  where state <> 'closed';
create index slice_account on slice (account_id) where state <> 'closed';
create index slice_due on slice (expires_at) where state <> 'closed';
create index slice_closed on slice (changed_at) where state = 'closed';
alter table slice enable row level security;
alter table slice force row level security;
create policy tenant on slice
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- The end of a request that was held from a slice: what it cost, and what of that no money was left for.
create table settlement (
  -- Without a foreign key: it is written for accounts only whose balance row is locked, and looking again would be paid by every request.
  account_id uuid not null,
  operation_id text not null,
  router_id uuid not null,
  slice_id uuid not null,
  key_id uuid not null,
  -- The key's month that it counts in (UTC).
  month date not null,
  amount bigint not null check (amount >= 0),
  -- The operator's loss; amount − lost was charged.
  lost bigint not null check (lost between 0 and amount),
  -- When the answer ended, by the router's clock.
  at timestamptz not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (account_id, operation_id)
);
create index settlement_lost on settlement (created_at) where lost > 0;
alter table settlement enable row level security;
alter table settlement force row level security;
create policy tenant on settlement
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
create trigger append_only before update or delete on settlement for each row execute function refuse_change();
create trigger append_only_truncate before truncate on settlement for each statement execute function refuse_change();
