-- What lasts: a span is open while the thing is active and is charged hour by hour (UTC), exactly once by construction.
create table span (
  account_id uuid not null references account (id),
  operation_id text not null,
  source_service text not null,
  resource text not null,
  -- 10⁻⁹ rubles per calendar month (UTC).
  amount_per_month bigint not null check (amount_per_month >= 0),
  description text not null,
  prices jsonb,
  started_at timestamptz not null,
  ended_at timestamptz check (ended_at >= started_at),
  charged_until timestamptz not null,
  charged bigint not null default 0,
  -- The part of it that was paid with bonus.
  charged_credits bigint not null default 0,
  primary key (account_id, operation_id)
);
create index span_due on span (charged_until) where ended_at is null;
alter table span enable row level security;
alter table span force row level security;
create policy tenant on span
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- One row per span and hour; the row of the closing begins where the last hour ended.
create table span_charge (
  account_id uuid not null,
  operation_id text not null,
  starts_at timestamptz not null,
  ends_at timestamptz not null,
  -- Negative only at a closing that was reported after hours had been charged.
  amount bigint not null,
  primary key (account_id, operation_id, starts_at),
  foreign key (account_id, operation_id) references span (account_id, operation_id)
);
alter table span_charge enable row level security;
alter table span_charge force row level security;
create policy tenant on span_charge
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
create trigger append_only before update or delete on span_charge for each row execute function refuse_change();
create trigger append_only_truncate before truncate on span_charge for each statement execute function refuse_change();

-- Microseconds of an interval, exact.
create function micro(p_time interval) returns numeric language sql immutable as $$
  select extract(epoch from p_time) * 1000000
$$;

-- What a time costs at a price per calendar month in UTC: the difference of two rounded-down totals from the month's
-- beginning, so that the parts of a month always sum to exactly its price, however it was cut.
create function span_cost(p_month bigint, p_from timestamptz, p_to timestamptz) returns bigint
language sql immutable as $$
  select coalesce(sum(
    div(p_month * micro(least(p_to at time zone 'UTC', m + interval '1 month') - m), micro(m + interval '1 month' - m))
    - div(p_month * micro(greatest(p_from at time zone 'UTC', m) - m), micro(m + interval '1 month' - m))
  ), 0)::bigint
  from generate_series(
    date_trunc('month', p_from at time zone 'UTC'), p_to at time zone 'UTC', interval '1 month') as m
$$;

-- Writes one charge: unlocked credits first, then money, which may go below zero. A negative amount pays back, paid-in
-- money first, so that bonus never turns into money.
create function span_post(s span, p_to timestamptz, p_amount bigint) returns span
language plpgsql as $$
declare
  v_credits bigint := 0;
  v_transfer uuid;
begin
  insert into span_charge (account_id, operation_id, starts_at, ends_at, amount)
    values (s.account_id, s.operation_id, s.charged_until, p_to, p_amount);
  if p_amount > 0 then
    update balance b set
      credits = b.credits - case when b.unlocked then least(p_amount, b.credits - b.credits_held) else 0 end,
      posted = b.posted - p_amount + case when b.unlocked then least(p_amount, b.credits - b.credits_held) else 0 end
    where b.account_id = s.account_id
    returning old.credits - new.credits into v_credits;
  elsif p_amount < 0 then
    v_credits := p_amount + least(-p_amount, s.charged - s.charged_credits);
    update balance b set credits = b.credits - v_credits, posted = b.posted - p_amount + v_credits
      where b.account_id = s.account_id;
  end if;
  if p_amount <> 0 then
    insert into transfer (account_id, kind, source_service, source_id, description, prices)
      values (s.account_id, case when p_amount > 0 then 'charge' else 'refund' end, s.source_service,
        s.operation_id || '@' || to_char(s.charged_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), s.description, s.prices)
      returning id into v_transfer;
    perform ledger_lines(s.account_id, v_transfer, array['money', 'revenue', 'credits', 'credits_spent'],
      array[v_credits - p_amount, p_amount - v_credits, -v_credits, v_credits]);
  end if;
  update span q set charged_until = greatest(p_to, q.charged_until), charged = q.charged + p_amount,
      charged_credits = q.charged_credits + v_credits
    where q.account_id = s.account_id and q.operation_id = s.operation_id returning q.* into s;
  return s;
end $$;

-- Charges the full hours of up to p_spans open spans, at most p_hours of each. Several workers may run at once: each takes
-- spans that no other has, in the order of accounts; a doubled hour would break the primary key of span_charge.
create function span_charge_due(p_now timestamptz, p_spans integer, p_hours integer) returns integer
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
      s := span_post(s, v_to, span_cost(s.amount_per_month, s.charged_until, v_to));
      v_hours := v_hours + 1;
    end loop;
    v_count := v_count + v_hours;
  end loop;
  return v_count;
end $$;

-- Opens a span. p_needs: what must be available for it (a floating IP needs a whole month), or null.
create function span_open(
  p_account uuid, p_operation text, p_service text, p_resource text, p_month bigint, p_started timestamptz,
  p_description text, p_prices jsonb, p_needs bigint)
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
    if s.amount_per_month <> p_month or s.started_at <> p_started or s.resource <> p_resource then
      raise exception 'operation_reused' using errcode = 'NB409';
    end if;
    return next s;
    return;
  end if;
  v_available := b.posted - b.held + case when b.unlocked then b.credits - b.credits_held else 0 end;
  if v_available < p_needs then
    perform money_refuse(p_account, '', 'control', p_needs);
  end if;
  insert into span (account_id, operation_id, source_service, resource, amount_per_month, description, prices, started_at, charged_until)
    values (p_account, p_operation, p_service, p_resource, p_month, p_description, p_prices, p_started, p_started)
    returning * into s;
  return next s;
end $$;

-- Ends a span and charges the exact rest, or pays back what was charged beyond its end.
create function span_close(p_account uuid, p_operation text, p_ended timestamptz) returns setof span
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
  s := span_post(s, p_ended, span_cost(s.amount_per_month, s.started_at, p_ended) - s.charged);
  update span q set ended_at = p_ended
    where q.account_id = p_account and q.operation_id = p_operation returning q.* into s;
  return next s;
end $$;
