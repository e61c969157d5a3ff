-- Takes the accounts' balance rows in the order that every function does: nobody waits for somebody who waits for him.
create function slice_lock(p_accounts uuid[]) returns void language plpgsql as $$
begin
  perform 1 from balance b where b.account_id = any(p_accounts) order by b.account_id for update;
end $$;

-- Refuses a router that another life of it has replaced. The lock keeps that from happening before this transaction ends.
create function slice_fence(p_router uuid, p_epoch integer) returns void language plpgsql as $$
declare
  v_epoch integer;
begin
  select r.epoch into v_epoch from router r where r.router_id = p_router for share;
  if v_epoch is distinct from p_epoch then
    raise exception 'fenced' using errcode = 'NB409';
  end if;
end $$;

-- Ends slices and frees their money. The caller holds the balance rows of their accounts.
create function slice_close(p_ids uuid[]) returns integer language sql as $$
  with closed as (
    update slice s set state = 'closed', amount = 0, in_use = 0, version = s.version + 1, changed_at = clock_timestamp()
      where s.id = any(p_ids) and s.state <> 'closed'
      returning s.account_id, s.key_id, s.month, old.amount
  ), money as (
    update balance b set leased = b.leased - c.amount
      from (select account_id, sum(amount)::bigint as amount from closed where key_id is null group by account_id) c
      where b.account_id = c.account_id
  ), limits as (
    update key_month k set leased = k.leased - c.amount
      from (select key_id, month, sum(amount)::bigint as amount from closed where key_id is not null group by key_id, month) c
      where k.key_id = c.key_id and k.month = c.month
  )
  select count(*)::integer from closed
$$;

-- Begins a life of a router. Its log has been settled before; what its former lives held comes free by slice_close_fenced,
-- in small transactions, and nobody can use it from now on.
create function slice_open(p_router uuid) returns integer language sql as $$
  insert into router as r (router_id, epoch) values (p_router, 1)
    on conflict (router_id) do update set epoch = r.epoch + 1, opened_at = clock_timestamp()
    returning r.epoch
$$;

-- Closes slices of former lives, of one router or of all, in up to p_limit accounts. Answers how many accounts had some.
create function slice_close_fenced(p_router uuid, p_limit integer) returns integer language plpgsql as $$
declare
  v_accounts uuid[];
begin
  perform set_config('app.account', 'system', true);
  v_accounts := array(
    select distinct s.account_id from slice s join router r on r.router_id = s.router_id
      where s.state <> 'closed' and s.epoch < r.epoch and (p_router is null or s.router_id = p_router) limit p_limit);
  perform slice_lock(v_accounts);
  perform slice_close(array(
    select s.id from slice s join router r on r.router_id = s.router_id
      where s.account_id = any(v_accounts) and s.state <> 'closed' and s.epoch < r.epoch
        and (p_router is null or s.router_id = p_router)));
  return cardinality(v_accounts);
end $$;

-- Refuses a grant of money, or of a key's limit when p_key is given, telling the reasons apart. `recall`: whether other
-- routers can help, with what they do not use ('idle'), or only with what they used when they last said so ('leased').
create function slice_refuse(
  p_router uuid, p_epoch integer, b balance, p_need bigint, p_key uuid, p_month date, p_limit bigint, p_key_need bigint)
returns void language plpgsql as $$
declare
  v_free bigint := greatest(b.posted - b.held - b.leased, 0);
  v_own bigint;
  v_own_key bigint;
  v_idle bigint;
  v_idle_key bigint;
  v_others_key bigint;
  k key_month;
  v_key_free bigint;
begin
  -- Only what others hold: how much of its own slice is in use the router knows itself, and better.
  select coalesce(sum(s.amount) filter (where o.own and s.key_id is null), 0),
      coalesce(sum(s.amount - s.in_use) filter (where not o.own and s.key_id is null), 0),
      coalesce(sum(s.amount) filter (where o.own and s.key_id is not null), 0),
      coalesce(sum(s.amount - s.in_use) filter (where not o.own and s.key_id is not null), 0),
      coalesce(sum(s.amount) filter (where not o.own and s.key_id is not null), 0)
    into v_own, v_idle, v_own_key, v_idle_key, v_others_key
    from slice s, lateral (select s.router_id = p_router and s.epoch = p_epoch as own) o
    where s.account_id = b.account_id and s.state <> 'closed'
      and (s.key_id is null or s.key_id = p_key and s.month = p_month);
  if p_key is null then
    raise exception '%',
      case when b.posted - v_own >= p_need then 'held_in_flight' else 'insufficient_balance' end
      using errcode = 'NB402', detail = json_build_object(
        'available', v_free::text, 'held', (b.held + b.leased - v_own)::text, 'recall',
        case when v_free + v_idle >= p_need then 'idle' when v_free + b.leased - v_own >= p_need then 'leased' end)::text;
  end if;
  select * into k from key_month m where m.key_id = p_key and m.month = p_month;
  v_key_free := greatest(p_limit - k.used - k.leased, 0);
  raise exception '%',
    case when p_limit - k.captured - v_own_key >= p_key_need then 'held_in_flight' else 'key_limit_reached' end
    using errcode = 'NB402', detail = json_build_object(
      'available', v_free::text, 'held', (b.held + b.leased - v_own)::text, 'key_available', v_key_free::text,
      'limit', p_limit::text, 'spent', k.captured::text, 'recall',
      case when v_key_free + v_idle_key >= p_key_need then 'idle' when v_key_free + v_others_key >= p_key_need then 'leased' end,
      'recall_key', p_key)::text;
end $$;

-- Grants money to a router, and a part of a key's limit together with it, or neither. At least what is needed, at most a
-- quarter of what is free: as the balance falls grants shrink to exactly the need, so that no router sits on the last of it.
-- Answers the router's slice of the account, then that of the key. A grant whose answer was lost shows in the next one's.
create function slice_take(
  p_router uuid, p_epoch integer, p_account uuid, p_need bigint, p_want bigint,
  p_key uuid, p_key_need bigint, p_key_want bigint, p_term integer)
returns setof slice language plpgsql as $$
declare
  b balance;
  k key_month;
  v_limit bigint;
  v_month date;
  v_free bigint;
  v_grant bigint;
begin
  perform set_config('app.account', p_account::text, true);
  perform slice_fence(p_router, p_epoch);
  select q.* into b from balance q join account a on a.id = q.account_id
    where q.account_id = p_account and a.state = 'active' for update of q;
  if not found then
    raise exception 'account_id' using errcode = 'NB404';
  end if;
  if b.topup_total = 0 then
    raise exception 'topup_required' using errcode = 'NB402', detail = '{"available":"0","held":"0"}';
  end if;
  v_free := greatest(b.posted - b.held - b.leased, 0);
  if p_need > v_free then
    perform slice_refuse(p_router, p_epoch, b, p_need, null, null, null, null);
  end if;

  -- Read after the lock was waited for: the month may have changed meanwhile.
  v_month := utc_month(clock_timestamp());
  if p_key is not null then
    select q.monthly_limit into v_limit from api_key q
      where q.account_id = p_account and q.id = p_key and q.kind = 'inference' and q.state = 'active';
    if not found then
      raise exception 'key_id' using errcode = 'NB404';
    end if;
    insert into key_month (account_id, key_id, month, used) values (p_account, p_key, v_month, 0) on conflict do nothing;
    select * into k from key_month m where m.key_id = p_key and m.month = v_month;
    if p_key_need > v_limit - k.used - k.leased then
      perform slice_refuse(p_router, p_epoch, b, p_need, p_key, v_month, v_limit, p_key_need);
    end if;
  end if;

  v_grant := greatest(p_need, least(p_want, v_free / 4));
  update balance q set leased = q.leased + v_grant where q.account_id = p_account;
  return query
    insert into slice as s (account_id, router_id, epoch, amount, expires_at)
      values (p_account, p_router, p_epoch, v_grant, clock_timestamp() + make_interval(secs => p_term))
      on conflict (router_id, epoch, account_id, key_id, month) where state <> 'closed' do update set
        amount = s.amount + excluded.amount, version = s.version + 1,
        state = 'active', expires_at = excluded.expires_at, changed_at = clock_timestamp()
      returning s.*;

  if p_key is not null then
    -- A limit that was taken away grants what is wanted; one that was lowered grants nothing beyond the need.
    v_grant := greatest(p_key_need, least(p_key_want, coalesce(greatest(v_limit - k.used - k.leased, 0) / 4, p_key_want)));
    update key_month m set leased = m.leased + v_grant where m.key_id = p_key and m.month = v_month;
    return query
      insert into slice as s (account_id, router_id, epoch, key_id, month, amount, expires_at)
        values (p_account, p_router, p_epoch, p_key, v_month, v_grant,
          -- No hold of a month from another one's limit.
          least(clock_timestamp() + make_interval(secs => p_term), (v_month + interval '1 month') at time zone 'UTC'))
        on conflict (router_id, epoch, account_id, key_id, month) where state <> 'closed' do update set
          amount = s.amount + excluded.amount, version = s.version + 1,
          state = 'active', expires_at = excluded.expires_at, changed_at = clock_timestamp()
        returning s.*;
  end if;
end $$;

-- Prolongs slices and notes what is in use of them. One whose account or key is gone, or whose month is over, gets no more
-- time, and is closed when nothing of it is in use.
create function slice_renew(p_router uuid, p_epoch integer, p_ids uuid[], p_in_use bigint[], p_term integer)
returns setof slice language plpgsql as $$
declare
  v_month date;
  v_accounts uuid[];
  v_gone uuid[];
begin
  perform set_config('app.account', 'system', true);
  perform slice_fence(p_router, p_epoch);
  v_accounts := array(
    select distinct s.account_id from slice s
      where s.id = any(p_ids) and s.router_id = p_router and s.epoch = p_epoch and s.state <> 'closed');
  perform slice_lock(v_accounts);
  v_month := utc_month(clock_timestamp());
  v_gone := array(
    select s.id from slice s
      join account a on a.id = s.account_id
      left join api_key k on k.account_id = s.account_id and k.id = s.key_id
      where s.id = any(p_ids) and s.account_id = any(v_accounts)
        and (a.state <> 'active' or s.key_id is not null and (s.month < v_month or k.state is distinct from 'active')));
  perform slice_close(array(
    select s.id from slice s join unnest(p_ids, p_in_use) as w (id, in_use) on w.id = s.id
      where s.id = any(v_gone) and s.router_id = p_router and s.epoch = p_epoch and w.in_use = 0));
  return query
    update slice s set in_use = least(w.in_use, s.amount), changed_at = clock_timestamp(),
        state = case when s.id = any(v_gone) then s.state else 'active' end,
        expires_at = case when s.id = any(v_gone) then s.expires_at else least(
          clock_timestamp() + make_interval(secs => p_term), (s.month + interval '1 month') at time zone 'UTC') end
      from unnest(p_ids, p_in_use) as w (id, in_use)
      where s.id = w.id and s.router_id = p_router and s.epoch = p_epoch and s.state <> 'closed'
        and s.account_id = any(v_accounts)
      returning s.*;
end $$;

-- Takes back what a router does not use. Applied once per version, so that a repeat, or a return that a grant has overtaken,
-- changes nothing. An empty slice stays open until its term is over: the next grant enlarges it.
create function slice_return(p_router uuid, p_epoch integer, p_ids uuid[], p_versions integer[], p_amounts bigint[])
returns setof slice language plpgsql as $$
declare
  v_accounts uuid[];
begin
  perform set_config('app.account', 'system', true);
  perform slice_fence(p_router, p_epoch);
  v_accounts := array(
    select distinct s.account_id from slice s
      where s.id = any(p_ids) and s.router_id = p_router and s.epoch = p_epoch and s.state <> 'closed');
  perform slice_lock(v_accounts);
  with given as (
    update slice s set amount = s.amount - least(w.amount, s.amount),
        in_use = least(s.in_use, s.amount - least(w.amount, s.amount)),
        version = s.version + 1, changed_at = clock_timestamp()
      from unnest(p_ids, p_versions, p_amounts) as w (id, version, amount)
      where s.id = w.id and s.version = w.version and s.router_id = p_router and s.epoch = p_epoch and s.state <> 'closed'
        and s.account_id = any(v_accounts)
      returning s.account_id, s.key_id, s.month, old.amount - new.amount as amount
  ), money as (
    update balance b set leased = b.leased - g.amount
      from (select account_id, sum(amount)::bigint as amount from given where key_id is null group by account_id) g
      where b.account_id = g.account_id
  )
  update key_month k set leased = k.leased - g.amount
    from (select key_id, month, sum(amount)::bigint as amount from given where key_id is not null group by key_id, month) g
    where k.key_id = g.key_id and k.month = g.month;
  return query
    select * from slice s
      where s.id = any(p_ids) and s.router_id = p_router and s.epoch = p_epoch and s.state <> 'closed';
end $$;

-- Freezes what is past its term, closes what is past it and empty, and forgets what was closed a week ago. Several replicas
-- may sweep at once: each takes accounts that no other has. Answers how many slices it froze or closed.
create function slice_sweep(p_limit integer) returns integer language plpgsql as $$
declare
  v_accounts uuid[];
  v_closed integer;
  v_frozen integer;
begin
  perform set_config('app.account', 'system', true);
  v_accounts := array(
    select b.account_id from balance b
      where b.account_id in (
        select s.account_id from slice s
          where s.state <> 'closed' and s.expires_at <= clock_timestamp() and (s.state = 'active' or s.amount = 0))
      order by b.account_id limit p_limit for update skip locked);
  v_closed := slice_close(array(
    select s.id from slice s
      where s.account_id = any(v_accounts) and s.state <> 'closed' and s.amount = 0 and s.expires_at <= clock_timestamp()));
  update slice s set state = 'frozen', changed_at = clock_timestamp()
    where s.account_id = any(v_accounts) and s.state = 'active' and s.expires_at <= clock_timestamp();
  get diagnostics v_frozen = row_count;
  delete from slice s where s.state = 'closed' and s.changed_at < clock_timestamp() - interval '7 days';
  return v_closed + v_frozen;
end $$;

-- The operator gives up a slice whose router will not come back: its money is free at once; what that router still settles
-- is charged to what is available then. Answers the slice as it was; a closed one is answered as it is.
create function slice_write_off(p_id uuid) returns setof slice language plpgsql as $$
declare
  s slice;
begin
  perform set_config('app.account', 'system', true);
  perform slice_lock(array(select q.account_id from slice q where q.id = p_id));
  select * into s from slice q where q.id = p_id;
  if not found then
    raise exception 'slice' using errcode = 'NB404';
  end if;
  -- Its router still holds requests from it: the same money would be spent twice.
  if s.state = 'active' and s.expires_at > clock_timestamp() then
    raise exception 'slice_in_use' using errcode = 'NB409';
  end if;
  perform slice_close(array[p_id]);
  return next s;
end $$;
