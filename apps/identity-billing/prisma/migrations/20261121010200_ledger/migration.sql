-- The ledger: double entry, append-only. Amounts are integers of 10⁻⁹ ruble.
--
-- Books of an account: money (paid in and free), money_held, credits (bonus, free), credits_held. Their counterparts:
-- topup (money came in), grant (bonus came in), revenue (money earned), credits_spent (bonus used up).

create table balance (
  account_id uuid primary key references account (id),
  -- Paid-in money not yet spent; held money still counts. Below zero: debt.
  posted bigint not null default 0,
  held bigint not null default 0 check (held >= 0),
  credits bigint not null default 0,
  credits_held bigint not null default 0 check (credits_held >= 0),
  topup_total bigint not null default 0 check (topup_total >= 0),
  -- Set by the first real top-up of at least NEBO_REAL_TOPUP_MIN: credits count from then on.
  unlocked boolean not null default false,
  check (credits >= credits_held)
);
alter table balance enable row level security;
alter table balance force row level security;
create policy tenant on balance
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

create table transfer (
  id uuid primary key default gen_random_uuid(),
  seq bigint generated always as identity,
  account_id uuid not null references account (id),
  kind text not null check (kind in ('topup', 'credit', 'hold', 'capture', 'release', 'charge', 'refund')),
  source_service text not null,
  source_id text not null,
  description text not null,
  -- Prices it was made at: [{"id", "version"}].
  prices jsonb,
  created_at timestamptz not null default clock_timestamp(),
  unique (account_id, id),
  -- With the account, so that a collision tells nothing about another one.
  unique (account_id, source_service, source_id, kind)
);
create index transfer_order on transfer (account_id, seq desc);
alter table transfer enable row level security;
alter table transfer force row level security;
create policy tenant on transfer
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

create table ledger_line (
  id bigint generated always as identity primary key,
  transfer_id uuid not null,
  account_id uuid not null,
  book text not null check (book in (
    'money', 'money_held', 'credits', 'credits_held', 'topup', 'grant', 'revenue', 'credits_spent')),
  amount bigint not null check (amount <> 0),
  foreign key (account_id, transfer_id) references transfer (account_id, id)
);
create index ledger_line_transfer on ledger_line (transfer_id);
create index ledger_line_account on ledger_line (account_id, book);
alter table ledger_line enable row level security;
alter table ledger_line force row level security;
create policy tenant on ledger_line
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

create trigger append_only before update or delete on transfer for each row execute function refuse_change();
create trigger append_only_truncate before truncate on transfer for each statement execute function refuse_change();
create trigger append_only before update or delete on ledger_line for each row execute function refuse_change();
create trigger append_only_truncate before truncate on ledger_line for each statement execute function refuse_change();

-- At commit each transfer's lines must sum to zero. Not seeing the line that was just written (another account's) is an
-- error as well, or row-level security could blind the check.
create function ledger_balanced() returns trigger language plpgsql as $$
declare
  v_sum numeric;
begin
  select sum(amount) into v_sum from ledger_line where transfer_id = new.transfer_id;
  if v_sum is distinct from 0 then
    raise exception 'the lines of transfer % sum to %, not to zero', new.transfer_id, v_sum using errcode = 'NB500';
  end if;
  return null;
end $$;
create constraint trigger ledger_balanced after insert on ledger_line deferrable initially deferred
  for each row execute function ledger_balanced();

-- Writes a transfer's lines: pairs of book and amount; what is zero is left out.
create function ledger_lines(p_account uuid, p_transfer uuid, p_books text[], p_amounts bigint[]) returns void
language sql as $$
  insert into ledger_line (transfer_id, account_id, book, amount)
  select p_transfer, p_account, l.book, l.amount from unnest(p_books, p_amounts) as l (book, amount) where l.amount <> 0
$$;

-- The balance of an account in one round trip.
create function balance_read(p_account uuid)
returns table (posted bigint, held bigint, credits bigint, credits_held bigint, unlocked boolean)
language plpgsql stable as $$
begin
  perform set_config('app.account', p_account::text, true);
  return query select b.posted, b.held, b.credits, b.credits_held, b.unlocked from balance b where b.account_id = p_account;
end $$;

-- Money from outside: a real top-up or a bonus. A repeat of the same source answers without posting again.
create function money_deposit(
  p_account uuid, p_kind text, p_amount bigint, p_service text, p_source text, p_description text, p_unlock_from bigint)
returns table (transfer_id uuid, fresh boolean)
language plpgsql as $$
declare
  v_transfer uuid;
  v_amount bigint;
begin
  perform set_config('app.account', p_account::text, true);
  insert into transfer (account_id, kind, source_service, source_id, description)
    values (p_account, p_kind, p_service, p_source, p_description)
    on conflict do nothing returning id into v_transfer;
  if v_transfer is null then
    select t.id, l.amount into v_transfer, v_amount from transfer t
      join ledger_line l on l.transfer_id = t.id and l.amount > 0
      where t.account_id = p_account and t.source_service = p_service and t.source_id = p_source and t.kind = p_kind;
    if v_amount is distinct from p_amount then
      raise exception 'operation_reused' using errcode = 'NB409';
    end if;
    return query select v_transfer, false;
    return;
  end if;
  if p_kind = 'topup' then
    update balance b set posted = b.posted + p_amount, topup_total = b.topup_total + p_amount,
      unlocked = b.unlocked or p_amount >= p_unlock_from where b.account_id = p_account;
    perform ledger_lines(p_account, v_transfer, array['money', 'topup'], array[p_amount, -p_amount]);
  else
    update balance b set credits = b.credits + p_amount where b.account_id = p_account;
    perform ledger_lines(p_account, v_transfer, array['credits', 'grant'], array[p_amount, -p_amount]);
  end if;
  return query select v_transfer, true;
end $$;
