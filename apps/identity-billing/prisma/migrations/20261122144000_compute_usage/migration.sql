-- What apps use on demand: Active CPU and memory by time, paid by the allowance of the account's plan first.

-- One part of an hour of an app. What was charged for it never changes.
create table compute_usage (
  account_id uuid not null references account (id),
  operation_id text not null,
  app_id uuid not null,
  -- 'replica': replicas on demand; 'run': runs of jobs.
  kind text not null check (kind in ('replica', 'run')),
  starts_at timestamptz not null,
  -- The month whose allowance it counts in (UTC).
  month date not null,
  cpu_us bigint not null check (cpu_us >= 0),
  memory_mb_ms bigint not null check (memory_mb_ms >= 0),
  cpu_included_us bigint not null check (cpu_included_us between 0 and cpu_us),
  memory_included_mb_ms bigint not null check (memory_included_mb_ms between 0 and memory_mb_ms),
  -- Why something of the hour is free: 'cpu_unmeasured', 'simulated'.
  free text,
  amount bigint not null check (amount >= 0),
  -- [{"id", "version"}]
  prices jsonb not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (account_id, operation_id)
);
create index compute_usage_time on compute_usage (account_id, starts_at);
create trigger append_only before update or delete on compute_usage for each row execute function refuse_change();
create trigger append_only_truncate before truncate on compute_usage for each statement execute function refuse_change();

-- What an account has spent of its plan's allowance in a calendar month (UTC).
create table allowance_month (
  account_id uuid not null references account (id),
  month date not null,
  cpu_us bigint not null default 0 check (cpu_us >= 0),
  memory_mb_ms bigint not null default 0 check (memory_mb_ms >= 0),
  primary key (account_id, month)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['compute_usage', 'allowance_month'] loop
    execute format('alter table %I enable row level security', v_table);
    execute format('alter table %I force row level security', v_table);
    execute format('create policy tenant on %1$I using (%2$s) with check (%2$s)', v_table,
      'current_setting(''app.account'', true) in (''system'', account_id::text)');
  end loop;
end $$;

-- The version of a price that was in force at a time; before its first version that one.
create function price_at(p_id text, p_time timestamptz) returns price language plpgsql stable as $$
declare
  v_price price;
begin
  select * into v_price from price where id = p_id
    order by created_at <= p_time desc, case when created_at <= p_time then version else -version end desc limit 1;
  if not found then
    raise exception 'there is no price %', p_id using errcode = 'NB500';
  end if;
  return v_price;
end $$;

-- Hours of a plan as what is counted: an hour has 3,600,000,000 microseconds, a GB-hour 1,024 x 3,600,000 MB-milliseconds.
create function allowance_left(p_account uuid, p_month date) returns table (cpu_us bigint, memory_mb_ms bigint)
language sql stable as $$
  select greatest(0, p.active_cpu_hours * 3600000000::bigint - coalesce(m.cpu_us, 0)),
    greatest(0, p.memory_gb_hours * 3686400000::bigint - coalesce(m.memory_mb_ms, 0))
  from account a join tariff_plan p on p.id = a.tariff_plan
    left join allowance_month m on m.account_id = a.id and m.month = p_month
  where a.id = p_account
$$;

-- Takes one part of an hour: the allowance first, the rest is charged, unlocked credits first, then money, which may go below
-- zero. A repeat answers what the first answered. The balance's row is held from the beginning: two parts of an account never
-- spend the same allowance.
create function compute_charge(
  p_account uuid, p_operation text, p_service text, p_app uuid, p_kind text, p_hour timestamptz, p_cpu bigint, p_memory bigint,
  p_free text, p_description text)
returns setof compute_usage language plpgsql as $$
declare
  u compute_usage;
  v_left record;
  v_cpu_price price := price_at('app.active_cpu.hour', p_hour);
  v_memory_price price := price_at('app.memory_gb.hour', p_hour);
  v_amount numeric;
  v_credits bigint := 0;
  v_transfer uuid;
begin
  perform set_config('app.account', p_account::text, true);
  perform 1 from balance b where b.account_id = p_account for update;
  if not found then
    raise exception 'account' using errcode = 'NB404';
  end if;
  select * into u from compute_usage q where q.account_id = p_account and q.operation_id = p_operation;
  if found then
    if u.app_id <> p_app or u.kind <> p_kind or u.starts_at <> p_hour or u.cpu_us <> p_cpu or u.memory_mb_ms <> p_memory
      or u.free is distinct from p_free then
      raise exception 'operation_reused' using errcode = 'NB409';
    end if;
    return next u;
    return;
  end if;
  u.account_id := p_account;
  u.operation_id := p_operation;
  u.app_id := p_app;
  u.kind := p_kind;
  u.starts_at := p_hour;
  u.month := utc_month(p_hour);
  u.cpu_us := p_cpu;
  u.memory_mb_ms := p_memory;
  u.free := p_free;
  select * into v_left from allowance_left(p_account, u.month);
  u.cpu_included_us := least(p_cpu, coalesce(v_left.cpu_us, 0));
  u.memory_included_mb_ms := least(p_memory, coalesce(v_left.memory_mb_ms, 0));
  insert into allowance_month as m (account_id, month, cpu_us, memory_mb_ms)
    values (p_account, u.month, u.cpu_included_us, u.memory_included_mb_ms)
    on conflict (account_id, month) do update set cpu_us = m.cpu_us + excluded.cpu_us,
      memory_mb_ms = m.memory_mb_ms + excluded.memory_mb_ms;
  -- Over the common denominator of both units, rounded up once.
  v_amount := ceil(
    ((p_cpu - u.cpu_included_us)::numeric * v_cpu_price.amount * 1024
      + (p_memory - u.memory_included_mb_ms)::numeric * v_memory_price.amount * 1000) / 3686400000000);
  u.amount := v_amount::bigint;
  u.prices := jsonb_build_array(
    jsonb_build_object('id', v_cpu_price.id, 'version', v_cpu_price.version),
    jsonb_build_object('id', v_memory_price.id, 'version', v_memory_price.version));
  u.created_at := clock_timestamp();
  insert into compute_usage select (u).*;
  insert into usage_record (account_id, operation_id, kind, amount, facts)
    values (p_account, p_operation, 'compute', u.amount, jsonb_build_object('kind', 'compute', 'app_id', p_app, 'of', p_kind,
      'hour', to_char(p_hour at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'cpu_us', p_cpu, 'memory_mb_ms', p_memory,
      'cpu_included_us', u.cpu_included_us, 'memory_included_mb_ms', u.memory_included_mb_ms, 'free', p_free));
  if u.amount > 0 then
    update balance b set
      credits = b.credits - case when b.unlocked then least(u.amount, b.credits - b.credits_held) else 0 end,
      posted = b.posted - u.amount + case when b.unlocked then least(u.amount, b.credits - b.credits_held) else 0 end
    where b.account_id = p_account
    returning old.credits - new.credits into v_credits;
    insert into transfer (account_id, kind, source_service, source_id, description, prices)
      values (p_account, 'charge', p_service, p_operation,
        p_description || ': ' || trim_scale(round((p_cpu - u.cpu_included_us) / 1000000.0, 3)) || ' s of Active CPU and '
          || trim_scale(round((p_memory - u.memory_included_mb_ms) / 3686400000.0, 6)) || ' GB-hours beyond the plan', u.prices)
      returning id into v_transfer;
    perform ledger_lines(p_account, v_transfer, array['money', 'revenue', 'credits', 'credits_spent'],
      array[v_credits - u.amount, u.amount - v_credits, -v_credits, v_credits]);
  end if;
  return next u;
end $$;

-- As before, with what is charged by use, and the allowances.
create or replace function ledger_reconcile()
returns table (account_id uuid, subject text, recorded numeric, computed numeric)
language plpgsql stable as $$
begin
  perform set_config('app.account', 'system', true);
  return query
  with books as (
    select l.account_id,
      coalesce(sum(l.amount) filter (where l.book in ('money', 'money_held')), 0) as posted,
      coalesce(sum(l.amount) filter (where l.book = 'money_held'), 0) as held,
      coalesce(sum(l.amount) filter (where l.book in ('credits', 'credits_held')), 0) as credits,
      coalesce(sum(l.amount) filter (where l.book = 'credits_held'), 0) as credits_held,
      coalesce(-sum(l.amount) filter (where l.book = 'topup'), 0) as topup_total,
      sum(l.amount) as total
    from ledger_line l group by l.account_id
  ), holds as (
    select r.account_id, sum(r.amount - r.credits) as held, sum(r.credits) as credits_held
    from reservation r where r.state = 'held' group by r.account_id
  ), leases as (
    select s.account_id, sum(s.amount) as leased from slice s where s.state <> 'closed' and s.key_id is null group by s.account_id
  ), key_leases as (
    select s.key_id, s.month, s.account_id, sum(s.amount) as leased from slice s
    where s.state <> 'closed' and s.key_id is not null group by s.key_id, s.month, s.account_id
  ), ended as (
    select t.account_id, sum(t.amount - t.lost) as charged from settlement t group by t.account_id
  ), reserved as (
    select r.key_id, r.month, r.account_id,
      coalesce(sum(case r.state when 'held' then r.amount when 'captured' then r.captured else 0 end), 0) as used,
      coalesce(sum(r.captured) filter (where r.state = 'captured'), 0) as captured
    from reservation r where r.key_id is not null group by r.key_id, r.month, r.account_id
    union all
    select t.key_id, t.month, t.account_id, sum(t.amount - t.lost), sum(t.amount - t.lost)
    from settlement t group by t.key_id, t.month, t.account_id
  ), months as (
    select r.key_id, r.month, r.account_id, sum(r.used) as used, sum(r.captured) as captured
    from reserved r group by r.key_id, r.month, r.account_id
  ), charges as (
    select c.account_id, c.operation_id, sum(c.amount) as charged from span_charge c group by c.account_id, c.operation_id
  ), span_money as (
    select c.account_id, sum(c.amount) as charged from span_charge c group by c.account_id
  ), used as (
    select u.account_id, sum(u.amount) as charged from compute_usage u group by u.account_id
  ), allowances as (
    select u.account_id, u.month, sum(u.cpu_included_us) as cpu, sum(u.memory_included_mb_ms) as memory
    from compute_usage u group by u.account_id, u.month
  ), captures as (
    select r.account_id, sum(r.captured - r.refunded) as kept from reservation r where r.state = 'captured' group by r.account_id
  ), earned as (
    select l.account_id, sum(l.amount) as amount from ledger_line l
    where l.book in ('revenue', 'credits_spent') group by l.account_id
  ), compared (account_id, subject, recorded, computed) as (
    select b.account_id, c.subject, c.recorded, c.computed
    from balance b left join books k using (account_id) left join holds h using (account_id)
      left join leases s using (account_id),
      lateral (values
        ('balance.posted', b.posted::numeric, coalesce(k.posted, 0)),
        ('balance.held', b.held, coalesce(k.held, 0)),
        ('balance.held by reservations', b.held, coalesce(h.held, 0)),
        ('balance.leased by slices', b.leased, coalesce(s.leased, 0)),
        ('balance.credits', b.credits, coalesce(k.credits, 0)),
        ('balance.credits_held', b.credits_held, coalesce(k.credits_held, 0)),
        ('balance.credits_held by reservations', b.credits_held, coalesce(h.credits_held, 0)),
        ('balance.topup_total', b.topup_total, coalesce(k.topup_total, 0)),
        ('sum of all lines', 0, coalesce(k.total, 0))
      ) as c (subject, recorded, computed)
    union all
    select k.account_id, 'lines without a balance', 0, 1 from books k left join balance b using (account_id)
      where b.account_id is null
    union all
    select coalesce(m.account_id, k.account_id), 'key month ' || coalesce(m.key_id, k.key_id) || ' ' || c.what, c.recorded, c.computed
    from key_month k full join months m on m.key_id = k.key_id and m.month = k.month
      left join key_leases l on l.key_id = k.key_id and l.month = k.month,
      lateral (values
        ('used', coalesce(k.used, 0)::numeric, coalesce(m.used, 0)),
        ('captured', coalesce(k.captured, 0), coalesce(m.captured, 0)),
        ('leased by slices', coalesce(k.leased, 0), coalesce(l.leased, 0))
      ) as c (what, recorded, computed)
    union all
    select s.account_id, 'span ' || s.operation_id, s.charged, coalesce(c.charged, 0)
    from span s left join charges c using (account_id, operation_id)
    union all
    select b.account_id, 'earned by captures, spans, settlements and use', coalesce(e.amount, 0),
      coalesce(c.kept, 0) + coalesce(s.charged, 0) + coalesce(t.charged, 0) + coalesce(u.charged, 0)
    from balance b left join earned e using (account_id) left join captures c using (account_id)
      left join span_money s using (account_id) left join ended t using (account_id) left join used u using (account_id)
    union all
    select coalesce(m.account_id, a.account_id), 'allowance of ' || coalesce(m.month, a.month) || ' ' || c.what, c.recorded, c.computed
    from allowance_month m full join allowances a on a.account_id = m.account_id and a.month = m.month,
      lateral (values
        ('CPU', coalesce(m.cpu_us, 0)::numeric, coalesce(a.cpu, 0)),
        ('memory', coalesce(m.memory_mb_ms, 0), coalesce(a.memory, 0))
      ) as c (what, recorded, computed)
    union all
    select min(l.account_id::text)::uuid, 'transfer ' || l.transfer_id, 0, sum(l.amount)
    from ledger_line l group by l.transfer_id having sum(l.amount) <> 0
  )
  select x.account_id, x.subject, x.recorded::numeric, x.computed::numeric
  from compared x where x.recorded <> x.computed order by x.account_id, x.subject;
end $$;
