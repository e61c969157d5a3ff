-- Spans at a price per hour, and the standing of accounts that have nothing left.

-- Beside the monthly amount: an hour is an hour in every month, so it is charged by the exact time.
alter table span add column amount_per_hour bigint not null default 0 check (amount_per_hour >= 0);

-- What a span costs from one time to another: each of its parts a difference of two rounded-down totals, so that the pieces of a
-- life always sum to exactly its price, however it was cut.
create function span_price(s span, p_from timestamptz, p_to timestamptz) returns bigint language sql immutable as $$
  select span_cost(s.amount_per_month, p_from, p_to)
    + (div(s.amount_per_hour * micro(p_to - s.started_at), 3600000000)
      - div(s.amount_per_hour * micro(p_from - s.started_at), 3600000000))::bigint
$$;

create or replace function span_charge_due(p_now timestamptz, p_spans integer, p_hours integer) returns integer
language plpgsql as $$
declare
  s span;
  v_to timestamptz;
  v_hours integer;
  v_count integer := 0;
begin
  perform set_config('app.account', 'system', true);
  for s in
    select * from span q
      where q.ended_at is null and q.charged_until < date_trunc('hour', p_now, 'UTC')
      order by q.account_id limit p_spans for update skip locked
  loop
    v_hours := 0;
    while v_hours < p_hours loop
      v_to := date_trunc('hour', s.charged_until, 'UTC') + interval '1 hour';
      exit when v_to > p_now;
      s := span_post(s, v_to, span_price(s, s.charged_until, v_to));
      v_hours := v_hours + 1;
    end loop;
    v_count := v_count + v_hours;
  end loop;
  return v_count;
end $$;

drop function span_open(uuid, text, text, text, bigint, timestamptz, text, jsonb, bigint);
create function span_open(
  p_account uuid, p_operation text, p_service text, p_resource text, p_month bigint, p_started timestamptz,
  p_description text, p_prices jsonb, p_needs bigint, p_hour bigint default 0)
returns setof span
language plpgsql as $$
declare
  s span;
  b balance;
  v_available bigint;
begin
  perform set_config('app.account', p_account::text, true);
  select * into b from balance where account_id = p_account for update;
  if not found then
    raise exception 'account' using errcode = 'NB404';
  end if;
  select * into s from span where account_id = p_account and operation_id = p_operation;
  if found then
    if s.amount_per_month <> p_month or s.amount_per_hour <> p_hour or s.started_at <> p_started
      or s.resource <> p_resource then
      raise exception 'operation_reused' using errcode = 'NB409';
    end if;
    return next s;
    return;
  end if;
  v_available := b.posted - b.held - b.leased + case when b.unlocked then b.credits - b.credits_held else 0 end;
  if v_available < p_needs then
    perform money_refuse(p_account, '', 'control', p_needs);
  end if;
  insert into span (account_id, operation_id, source_service, resource, amount_per_month, amount_per_hour, description, prices,
      started_at, charged_until)
    values (p_account, p_operation, p_service, p_resource, p_month, p_hour, p_description, p_prices, p_started, p_started)
    returning * into s;
  return next s;
end $$;

create or replace function span_close(p_account uuid, p_operation text, p_ended timestamptz) returns setof span
language plpgsql as $$
declare
  s span;
begin
  perform set_config('app.account', p_account::text, true);
  select * into s from span where account_id = p_account and operation_id = p_operation for update;
  if not found then
    raise exception 'operation_id' using errcode = 'NB404';
  end if;
  if s.ended_at is not null then
    if s.ended_at <> p_ended then
      raise exception 'already_closed' using errcode = 'NB409';
    end if;
    return next s;
    return;
  end if;
  if p_ended < s.started_at then
    raise exception 'ended_at' using errcode = 'NB422';
  end if;
  s := span_post(s, p_ended, span_price(s, s.started_at, p_ended) - s.charged);
  update span q set ended_at = p_ended
    where q.account_id = p_account and q.operation_id = p_operation returning q.* into s;
  return next s;
end $$;

-- Accounts that are short of money. A row is made when that begins and stays.
create table account_standing (
  account_id uuid primary key references account (id),
  low boolean not null default false,
  -- Since when nothing is left while something is charged or owed; null: it is in order.
  empty_since timestamptz,
  suspended_at timestamptz
);
create index account_standing_empty on account_standing (empty_since) where empty_since is not null;
alter table account_standing enable row level security;
alter table account_standing force row level security;
create policy tenant on account_standing
  using (current_setting('app.account', true) in ('system', account_id::text))
  with check (current_setting('app.account', true) in ('system', account_id::text));
create index span_open_account on span (account_id) where ended_at is null;

-- What accounts have left at this moment: money and unlocked bonus, without what their open spans cost since the last hour that
-- was charged. Holds and leases still belong to the account. `empty`: nothing, while something is charged by time or owed. An
-- account at exactly zero to which nothing is charged owes nothing: what it has was paid before.
create function standing_figures(p_account uuid)
returns table (account_id uuid, available bigint, empty boolean, ever boolean)
language sql stable as $$
  select b.account_id, x.available, x.available <= 0 and (b.posted < 0 or d.account_id is not null), b.topup_total > 0
  from balance b
  left join (
    select s.account_id, sum(span_price(s, s.charged_until, clock_timestamp())) as due from span s
      where s.ended_at is null and s.charged_until <= clock_timestamp() and (p_account is null or s.account_id = p_account)
      group by s.account_id) d on d.account_id = b.account_id,
  lateral (select (b.posted + case when b.unlocked then b.credits else 0 end - coalesce(d.due, 0))::bigint as available) x
  where p_account is null or b.account_id = p_account
$$;

-- Notes who has become short of money, has been so for p_grace_hours, or has money again, and answers with what has changed:
-- low, empty, suspended, resumed. Each change is answered to one caller. The figures are read again under the balance's lock, so
-- that money which has just come in counts.
create function standing_sweep(p_account uuid, p_low bigint, p_grace_hours integer)
returns table (account_id uuid, change text, available bigint) language plpgsql as $$
declare
  v_id uuid;
  f record;
  s account_standing;
begin
  perform set_config('app.account', 'system', true);
  for v_id in
    select g.account_id from standing_figures(p_account) g left join account_standing q using (account_id)
      where (g.ever and g.available < p_low) <> coalesce(q.low, false) or g.empty <> (q.empty_since is not null)
        or (g.empty and q.suspended_at is null and q.empty_since <= now() - make_interval(hours => p_grace_hours))
      order by g.account_id
  loop
    perform 1 from balance b where b.account_id = v_id for update;
    insert into account_standing (account_id) values (v_id) on conflict do nothing;
    select * into s from account_standing q where q.account_id = v_id for update;
    select g.available, g.empty, g.ever and g.available < p_low as low into f from standing_figures(v_id) g;
    account_id := v_id;
    available := f.available;
    if f.low and not s.low then
      change := 'low';
      return next;
    end if;
    if f.empty and s.empty_since is null then
      change := 'empty';
      return next;
      s.empty_since := now();
    end if;
    if f.empty and s.suspended_at is null and s.empty_since <= now() - make_interval(hours => p_grace_hours) then
      change := 'suspended';
      return next;
      s.suspended_at := now();
    end if;
    if not f.empty then
      if s.suspended_at is not null then
        change := 'resumed';
        return next;
      end if;
      s.empty_since := null;
      s.suspended_at := null;
    end if;
    update account_standing q set low = f.low, empty_since = s.empty_since, suspended_at = s.suspended_at
      where q.account_id = v_id;
  end loop;
end $$;
