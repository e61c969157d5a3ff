-- Reservations: reserve, then capture or void, once; what is neither by its time expires (database time).
-- Every function takes its locks in the order reservation, balance, key month, and runs as the account it serves.

create table reservation (
  account_id uuid not null references account (id),
  -- The caller's id of the operation, usually that of the resource.
  operation_id text not null,
  source_service text not null,
  kind text not null check (kind in ('control', 'inference')),
  amount bigint not null check (amount >= 0),
  -- How much of it is bonus; the rest is paid-in money.
  credits bigint not null check (credits between 0 and amount),
  key_id uuid,
  -- The key's month that it counts in (UTC).
  month date,
  state text not null default 'held' check (state in ('held', 'captured', 'void', 'expired')),
  captured bigint not null default 0 check (captured between 0 and amount),
  captured_credits bigint not null default 0 check (captured_credits between 0 and captured),
  refunded bigint not null default 0 check (refunded between 0 and captured),
  description text not null,
  prices jsonb,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  resolved_at timestamptz,
  primary key (account_id, operation_id)
);
create index reservation_due on reservation (expires_at) where state = 'held';
alter table reservation enable row level security;
alter table reservation force row level security;
create policy tenant on reservation
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- What an inference key has spent and holds in a calendar month (UTC); guarded by the key's limit.
create table key_month (
  account_id uuid not null references account (id),
  key_id uuid not null,
  month date not null,
  -- Held and captured.
  used bigint not null check (used >= 0),
  captured bigint not null default 0 check (captured between 0 and used),
  primary key (key_id, month)
);
alter table key_month enable row level security;
alter table key_month force row level security;
create policy tenant on key_month
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- What a captured amount was for, counted: for the panel and for the export to Kafka.
create table usage_record (
  id uuid primary key default gen_random_uuid(),
  seq bigint generated always as identity,
  account_id uuid not null references account (id),
  operation_id text not null,
  kind text not null,
  key_id uuid,
  model text,
  amount bigint not null,
  facts jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  sent_at timestamptz,
  unique (account_id, operation_id)
);
create index usage_record_unsent on usage_record (seq) where sent_at is null;
create index usage_record_account on usage_record (account_id, created_at);
alter table usage_record enable row level security;
alter table usage_record force row level security;
create policy tenant on usage_record
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

create function utc_month(p_at timestamptz) returns date language sql immutable as $$
  select date_trunc('month', p_at at time zone 'UTC')::date
$$;

-- Refuses a reservation, telling the reasons apart; the caller's message is made from the figures in the detail.
create function money_refuse(p_account uuid, p_operation text, p_kind text, p_amount bigint) returns void
language plpgsql as $$
declare
  b balance%rowtype;
  v_credits bigint;
  v_held bigint;
  v_available bigint;
begin
  -- A double of the same operation may have taken the money while this one waited for the row.
  if exists (select 1 from reservation r where r.account_id = p_account and r.operation_id = p_operation) then
    raise exception 'again' using errcode = 'NB001';
  end if;
  select * into b from balance where account_id = p_account;
  if not found then
    raise exception 'account' using errcode = 'NB404';
  end if;
  if p_kind = 'inference' and b.topup_total = 0 then
    raise exception 'topup_required' using errcode = 'NB402', detail = '{}';
  end if;
  v_credits := case when p_kind = 'control' and b.unlocked then b.credits - b.credits_held else 0 end;
  v_held := b.held + case when p_kind = 'control' and b.unlocked then b.credits_held else 0 end;
  v_available := b.posted - b.held + v_credits;
  raise exception '%', case when v_available + v_held >= p_amount then 'held_in_flight' else 'insufficient_balance' end
    using errcode = 'NB402', detail = json_build_object('available', v_available::text, 'held', v_held::text)::text;
end $$;

-- Takes an amount out of what is available, and out of the key's month, or raises. A repeat answers the present state.
create function money_reserve(
  p_account uuid, p_operation text, p_service text, p_kind text, p_key uuid, p_amount bigint, p_description text,
  p_prices jsonb, p_seconds integer)
returns setof reservation
language plpgsql as $$
declare
  r reservation%rowtype;
  v_limit bigint;
  v_month date := utc_month(clock_timestamp());
  v_credits bigint;
  v_transfer uuid;
  v_captured bigint;
begin
  perform set_config('app.account', p_account::text, true);
  select * into r from reservation where account_id = p_account and operation_id = p_operation;
  if found then
    if r.amount <> p_amount or r.kind <> p_kind or r.key_id is distinct from p_key then
      raise exception 'operation_reused' using errcode = 'NB409';
    end if;
    return next r;
    return;
  end if;
  if p_key is not null then
    select monthly_limit into v_limit from api_key where account_id = p_account and id = p_key and state = 'active';
    if not found then
      raise exception 'key_id' using errcode = 'NB404';
    end if;
  end if;

  -- The guard: two reservations at once never take the same ruble, since the second waits for the row and looks again.
  update balance b set
    held = b.held + p_amount
      - case when p_kind = 'control' and b.unlocked then least(p_amount, b.credits - b.credits_held) else 0 end,
    credits_held = b.credits_held
      + case when p_kind = 'control' and b.unlocked then least(p_amount, b.credits - b.credits_held) else 0 end
  where b.account_id = p_account and (p_kind <> 'inference' or b.topup_total > 0)
    and b.posted - b.held + case when p_kind = 'control' and b.unlocked then b.credits - b.credits_held else 0 end >= p_amount
  returning new.credits_held - old.credits_held into v_credits;
  if not found then
    perform money_refuse(p_account, p_operation, p_kind, p_amount);
  end if;

  if p_key is not null then
    insert into key_month as m (account_id, key_id, month, used)
      select p_account, p_key, v_month, p_amount where v_limit is null or p_amount <= v_limit
      on conflict (key_id, month) do update set used = m.used + p_amount
        where v_limit is null or m.used + p_amount <= v_limit;
    if not found then
      select captured into v_captured from key_month where key_id = p_key and month = v_month;
      if exists (select 1 from reservation q where q.account_id = p_account and q.operation_id = p_operation) then
        raise exception 'again' using errcode = 'NB001';
      end if;
      -- Spent alone leaves room: it is the key's own requests in flight that fill the limit.
      raise exception '%', case when coalesce(v_captured, 0) + p_amount <= v_limit then 'held_in_flight' else 'key_limit_reached' end
        using errcode = 'NB402',
          detail = json_build_object('limit', v_limit::text, 'spent', coalesce(v_captured, 0)::text)::text;
    end if;
  end if;

  insert into reservation (account_id, operation_id, source_service, kind, amount, credits, key_id, month, description, prices, expires_at)
    values (p_account, p_operation, p_service, p_kind, p_amount, v_credits, p_key,
      case when p_key is null then null else v_month end, p_description, p_prices,
      clock_timestamp() + make_interval(secs => p_seconds))
    on conflict do nothing returning * into r;
  if not found then
    raise exception 'again' using errcode = 'NB001';
  end if;
  insert into transfer (account_id, kind, source_service, source_id, description, prices)
    values (p_account, 'hold', p_service, p_operation, p_description, p_prices) returning id into v_transfer;
  perform ledger_lines(p_account, v_transfer, array['money', 'money_held', 'credits', 'credits_held'],
    array[v_credits - p_amount, p_amount - v_credits, -v_credits, v_credits]);
  return next r;
end $$;

-- Gives a held reservation back as a whole. The caller holds the row's lock.
create function money_release(r reservation, p_state text) returns reservation
language plpgsql as $$
declare
  v_transfer uuid;
begin
  update balance b set held = b.held - (r.amount - r.credits), credits_held = b.credits_held - r.credits
    where b.account_id = r.account_id;
  if r.key_id is not null then
    update key_month m set used = m.used - r.amount where m.key_id = r.key_id and m.month = r.month;
  end if;
  insert into transfer (account_id, kind, source_service, source_id, description, prices)
    values (r.account_id, 'release', r.source_service, r.operation_id, r.description, r.prices) returning id into v_transfer;
  perform ledger_lines(r.account_id, v_transfer, array['money', 'money_held', 'credits', 'credits_held'],
    array[r.amount - r.credits, r.credits - r.amount, r.credits, -r.credits]);
  update reservation q set state = p_state, resolved_at = clock_timestamp()
    where q.account_id = r.account_id and q.operation_id = r.operation_id returning q.* into r;
  return r;
end $$;

-- Finds a reservation and locks it; one whose time is over expires here, whether the sweep has come by or not.
create function money_lock(p_account uuid, p_operation text) returns reservation
language plpgsql as $$
declare
  r reservation%rowtype;
begin
  perform set_config('app.account', p_account::text, true);
  select * into r from reservation where account_id = p_account and operation_id = p_operation for update;
  if not found then
    raise exception 'operation_id' using errcode = 'NB404';
  end if;
  if r.state = 'held' and r.expires_at <= clock_timestamp() then
    r := money_release(r, 'expired');
  end if;
  return r;
end $$;

-- Charges at most what was reserved and gives back the rest. When the state is not 'captured' afterwards, or the captured
-- amount is another one, nothing was charged by this call.
create function money_capture(p_account uuid, p_operation text, p_amount bigint, p_description text, p_usage jsonb)
returns setof reservation
language plpgsql as $$
declare
  r reservation%rowtype;
  v_amount bigint;
  v_credits bigint;
  v_money bigint;
  v_transfer uuid;
begin
  r := money_lock(p_account, p_operation);
  if r.state <> 'held' then
    return next r;
    return;
  end if;
  v_amount := coalesce(p_amount, r.amount);
  if v_amount > r.amount then
    raise exception 'amount' using errcode = 'NB422';
  end if;
  v_credits := least(v_amount, r.credits);
  v_money := v_amount - v_credits;
  update balance b set held = b.held - (r.amount - r.credits), posted = b.posted - v_money,
    credits_held = b.credits_held - r.credits, credits = b.credits - v_credits
    where b.account_id = p_account;
  if r.key_id is not null then
    update key_month m set used = m.used - r.amount + v_amount, captured = m.captured + v_amount
      where m.key_id = r.key_id and m.month = r.month;
  end if;
  insert into transfer (account_id, kind, source_service, source_id, description, prices)
    values (p_account, 'capture', r.source_service, p_operation, coalesce(p_description, r.description), r.prices)
    returning id into v_transfer;
  perform ledger_lines(p_account, v_transfer,
    array['money_held', 'money', 'revenue', 'credits_held', 'credits', 'credits_spent'],
    array[r.credits - r.amount, r.amount - r.credits - v_money, v_money, -r.credits, r.credits - v_credits, v_credits]);
  if p_usage is not null then
    insert into usage_record (account_id, operation_id, kind, key_id, model, amount, facts)
      values (p_account, p_operation, p_usage ->> 'kind', coalesce((p_usage ->> 'key_id')::uuid, r.key_id),
        p_usage ->> 'model', v_amount, p_usage);
  end if;
  update reservation q set state = 'captured', captured = v_amount, captured_credits = v_credits, resolved_at = clock_timestamp()
    where q.account_id = p_account and q.operation_id = p_operation returning q.* into r;
  return next r;
end $$;

-- Gives everything back; a repeat answers the present state.
create function money_void(p_account uuid, p_operation text) returns setof reservation
language plpgsql as $$
declare
  r reservation%rowtype;
begin
  r := money_lock(p_account, p_operation);
  if r.state = 'held' then
    r := money_release(r, 'void');
  end if;
  return next r;
end $$;

-- Pays back a captured reservation, once, paid-in money first: what was ordered could not be made.
create function money_refund(p_account uuid, p_operation text, p_amount bigint, p_description text) returns setof reservation
language plpgsql as $$
declare
  r reservation%rowtype;
  v_amount bigint;
  v_money bigint;
  v_transfer uuid;
begin
  r := money_lock(p_account, p_operation);
  v_amount := coalesce(p_amount, r.captured);
  if r.state <> 'captured' or r.refunded > 0 then
    return next r;
    return;
  end if;
  if v_amount > r.captured then
    raise exception 'amount' using errcode = 'NB422';
  end if;
  v_money := least(v_amount, r.captured - r.captured_credits);
  update balance b set posted = b.posted + v_money, credits = b.credits + (v_amount - v_money) where b.account_id = p_account;
  insert into transfer (account_id, kind, source_service, source_id, description, prices)
    values (p_account, 'refund', r.source_service, p_operation, p_description, r.prices) returning id into v_transfer;
  perform ledger_lines(p_account, v_transfer, array['money', 'revenue', 'credits', 'credits_spent'],
    array[v_money, -v_money, v_amount - v_money, v_money - v_amount]);
  update reservation q set refunded = v_amount
    where q.account_id = p_account and q.operation_id = p_operation returning q.* into r;
  return next r;
end $$;

-- Expires what is due (of one account, or of all). Several replicas may sweep at once: each takes rows that no other has,
-- in the order of accounts, so that two sweeps cannot wait for each other.
create function money_expire(p_account uuid, p_limit integer) returns integer
language plpgsql as $$
declare
  r reservation;
  v_count integer := 0;
begin
  perform set_config('app.account', coalesce(p_account::text, 'system'), true);
  for r in
    select * from reservation q
      where q.state = 'held' and q.expires_at <= clock_timestamp() and (p_account is null or q.account_id = p_account)
      order by q.account_id limit p_limit for update skip locked
  loop
    perform money_release(r, 'expired');
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;
