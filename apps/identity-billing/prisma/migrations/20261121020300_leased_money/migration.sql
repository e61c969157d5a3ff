-- What takes money, or tells of it, leaves alone what routers have leased. The functions of before, with that in them.

-- Refuses a reservation, telling the reasons apart; the caller's message is made from the figures in the detail. `recall`:
-- whether routers can help, with what they do not use ('idle'), or only with what they used when they last said so ('leased').
create or replace function money_refuse(p_account uuid, p_operation text, p_kind text, p_amount bigint) returns void
language plpgsql as $$
declare
  b balance%rowtype;
  v_credits bigint;
  v_held bigint;
  v_free bigint;
  v_idle bigint;
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
  v_held := b.held + b.leased + case when p_kind = 'control' and b.unlocked then b.credits_held else 0 end;
  v_free := b.posted - b.held - b.leased + v_credits;
  v_idle := (select coalesce(sum(s.amount - s.in_use), 0) from slice s
    where s.account_id = p_account and s.key_id is null and s.state <> 'closed');
  if v_free + v_held >= p_amount then
    raise exception 'held_in_flight' using errcode = 'NB402', detail = json_build_object(
      'available', v_free::text, 'held', v_held::text, 'recall',
      case when v_free + v_idle >= p_amount then 'idle' when v_free + b.leased >= p_amount then 'leased' end)::text;
  end if;
  raise exception 'insufficient_balance' using errcode = 'NB402', detail = json_build_object(
    'available', (v_free + v_idle)::text, 'held', (v_held - v_idle)::text)::text;
end $$;

-- Takes an amount out of what is available, and out of the key's month, or raises. A repeat answers the present state.
create or replace function money_reserve(
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
  v_recall text;
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
    and b.posted - b.held - b.leased + case when p_kind = 'control' and b.unlocked then b.credits - b.credits_held else 0 end >= p_amount
  returning new.credits_held - old.credits_held into v_credits;
  if not found then
    perform money_refuse(p_account, p_operation, p_kind, p_amount);
  end if;

  if p_key is not null then
    insert into key_month as m (account_id, key_id, month, used)
      select p_account, p_key, v_month, p_amount where v_limit is null or p_amount <= v_limit
      on conflict (key_id, month) do update set used = m.used + p_amount
        where v_limit is null or m.used + m.leased + p_amount <= v_limit;
    if not found then
      select m.captured, case when v_limit - m.used - s.in_use >= p_amount then 'idle' when v_limit - m.used >= p_amount then 'leased' end
        into v_captured, v_recall
        from key_month m, lateral (
          select coalesce(sum(q.in_use), 0) as in_use from slice q
            where q.key_id = p_key and q.month = v_month and q.account_id = p_account and q.state <> 'closed') s
        where m.key_id = p_key and m.month = v_month;
      if exists (select 1 from reservation q where q.account_id = p_account and q.operation_id = p_operation) then
        raise exception 'again' using errcode = 'NB001';
      end if;
      -- Spent alone leaves room: it is the key's own requests in flight that fill the limit.
      raise exception '%', case when coalesce(v_captured, 0) + p_amount <= v_limit then 'held_in_flight' else 'key_limit_reached' end
        using errcode = 'NB402',
          detail = json_build_object('limit', v_limit::text, 'spent', coalesce(v_captured, 0)::text,
            'recall', v_recall, 'recall_key', p_key)::text;
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

-- Opens a span. p_needs: what must be available for it (a floating IP needs a whole month), or null.
create or replace function span_open(
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
  v_available := b.posted - b.held - b.leased + case when b.unlocked then b.credits - b.credits_held else 0 end;
  if v_available < p_needs then
    perform money_refuse(p_account, '', 'control', p_needs);
  end if;
  insert into span (account_id, operation_id, source_service, resource, amount_per_month, description, prices, started_at, charged_until)
    values (p_account, p_operation, p_service, p_resource, p_month, p_description, p_prices, p_started, p_started)
    returning * into s;
  return next s;
end $$;

-- The figures of a balance in one round trip. in_use: what routers have leased and use; of a slice that is past its term
-- nobody knows, so all of it counts.
create function balance_figures(p_account uuid)
returns table (posted bigint, held bigint, in_use bigint, credits bigint, credits_held bigint, unlocked boolean)
language plpgsql stable as $$
begin
  perform set_config('app.account', p_account::text, true);
  return query select b.posted, b.held,
      (select coalesce(sum(case when s.state = 'active' and s.expires_at > clock_timestamp() then s.in_use else s.amount end), 0)
        from slice s where s.account_id = p_account and s.key_id is null and s.state <> 'closed')::bigint,
      b.credits, b.credits_held, b.unlocked
    from balance b where b.account_id = p_account;
end $$;

-- Recomputes every guarded row from what it stands for and answers where they differ. Nothing is mended here: a difference
-- is an error in the code or a hand in the database, and a person must see it. One statement, so one snapshot.
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
    select b.account_id, 'earned by captures, spans and settlements', coalesce(e.amount, 0),
      coalesce(c.kept, 0) + coalesce(s.charged, 0) + coalesce(t.charged, 0)
    from balance b left join earned e using (account_id) left join captures c using (account_id)
      left join span_money s using (account_id) left join ended t using (account_id)
    union all
    select min(l.account_id::text)::uuid, 'transfer ' || l.transfer_id, 0, sum(l.amount)
    from ledger_line l group by l.transfer_id having sum(l.amount) <> 0
  )
  select x.account_id, x.subject, x.recorded::numeric, x.computed::numeric
  from compared x where x.recorded <> x.computed order by x.account_id, x.subject;
end $$;
