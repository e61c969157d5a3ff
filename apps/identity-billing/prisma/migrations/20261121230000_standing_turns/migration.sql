-- The comparison of accounts with their money, for many accounts: it works out exactly only what may have changed, holds few
-- balances at a time, and of several replicas one does it.

drop function standing_sweep(uuid, bigint, integer);
drop function standing_figures(uuid);

-- What an account has left at this moment: money and unlocked bonus, without what its open spans cost since the last hour that
-- was charged. Holds and leases still belong to it. `empty`: nothing, while something is charged by time or owed. An account at
-- exactly zero to which nothing is charged owes nothing: what it has was paid before.
create function standing_of(p_account uuid) returns table (available bigint, empty boolean, ever boolean)
language sql stable as $$
  select x.available, x.available <= 0 and (b.posted < 0 or d.due is not null), b.topup_total > 0
  from balance b
  left join lateral (
    select sum(span_price(s, s.charged_until, clock_timestamp())) as due from span s
      where s.account_id = p_account and s.ended_at is null and s.charged_until <= clock_timestamp()) d on true,
  lateral (select (b.posted + case when b.unlocked then b.credits else 0 end - coalesce(d.due, 0))::bigint as available) x
  where b.account_id = p_account
$$;

-- Accounts whose standing may have to change. What is due is estimated from above: at the price of the shortest month, to the
-- end of the hour that has begun.
create function standing_suspects(p_low bigint) returns setof uuid language sql stable as $$
  select b.account_id from balance b
  left join account_standing q on q.account_id = b.account_id
  left join (
    select s.account_id, sum((s.amount_per_hour + div(s.amount_per_month, 672) + 1)
        * (ceil(extract(epoch from clock_timestamp() - s.charged_until) / 3600) + 1)) as most
      from span s where s.ended_at is null and s.charged_until <= clock_timestamp() group by s.account_id) d
    on d.account_id = b.account_id,
  lateral (select b.posted + case when b.unlocked then b.credits else 0 end - coalesce(d.most, 0) as least) x
  where q.low or q.empty_since is not null or (b.topup_total > 0 and x.least < p_low)
    or (x.least <= 0 and (b.posted < 0 or d.most is not null))
$$;

-- Notes who has become short of money, has been so for p_grace_hours, or has money again, and answers with what has changed:
-- low, empty, suspended, resumed, or null for an account that nobody needs to hear of. Each change is answered to one caller. Of
-- all accounts (p_account null) at most p_most that change are taken: their balances are held until the caller's transaction
-- ends, and no money moves meanwhile. The figures are read again under the balance's lock, so that money which has just come in
-- counts.
create function standing_sweep(p_account uuid, p_low bigint, p_grace_hours integer, p_most integer)
returns table (account_id uuid, change text, available bigint) language plpgsql as $$
declare
  v_id uuid;
  v_said boolean;
  f record;
  s account_standing;
begin
  perform set_config('app.account', 'system', true);
  -- Another replica is at it.
  if p_account is null and not pg_try_advisory_xact_lock(hashtextextended('standing_sweep', 0)) then
    return;
  end if;
  for v_id in
    select c.id from (
        select x as id from standing_suspects(p_low) x where p_account is null
        union all select p_account where p_account is not null) c
      cross join lateral standing_of(c.id) g left join account_standing q on q.account_id = c.id
      where (g.ever and g.available < p_low) <> coalesce(q.low, false) or g.empty <> (q.empty_since is not null)
        or (g.empty and q.suspended_at is null and q.empty_since <= now() - make_interval(hours => p_grace_hours))
      order by c.id limit p_most
  loop
    perform 1 from balance b where b.account_id = v_id for update;
    insert into account_standing (account_id) values (v_id) on conflict do nothing;
    select * into s from account_standing q where q.account_id = v_id for update;
    select g.available, g.empty, g.ever and g.available < p_low as low into f from standing_of(v_id) g;
    account_id := v_id;
    available := f.available;
    v_said := false;
    if f.low and not s.low then
      change := 'low';
      v_said := true;
      return next;
    end if;
    if f.empty and s.empty_since is null then
      change := 'empty';
      v_said := true;
      return next;
      s.empty_since := now();
    end if;
    if f.empty and s.suspended_at is null and s.empty_since <= now() - make_interval(hours => p_grace_hours) then
      change := 'suspended';
      v_said := true;
      return next;
      s.suspended_at := now();
    end if;
    if not f.empty then
      if s.suspended_at is not null then
        change := 'resumed';
        v_said := true;
        return next;
      end if;
      s.empty_since := null;
      s.suspended_at := null;
    end if;
    if not v_said then
      change := null;
      return next;
    end if;
    update account_standing q set low = f.low, empty_since = s.empty_since, suspended_at = s.suspended_at
      where q.account_id = v_id;
  end loop;
end $$;
