-- As before, but a span at a price of nothing charges nothing: an account at exactly zero that has nothing else is in order.

create or replace function standing_of(p_account uuid) returns table (available bigint, empty boolean, ever boolean)
language sql stable as $$
  select x.available, x.available <= 0 and (b.posted < 0 or d.due is not null), b.topup_total > 0
  from balance b
  left join lateral (
    select sum(span_price(s, s.charged_until, clock_timestamp())) as due from span s
      where s.account_id = p_account and s.ended_at is null and s.charged_until <= clock_timestamp()
        and (s.amount_per_month > 0 or s.amount_per_hour > 0)) d on true,
  lateral (select (b.posted + case when b.unlocked then b.credits else 0 end - coalesce(d.due, 0))::bigint as available) x
  where b.account_id = p_account
$$;

create or replace function standing_suspects(p_low bigint) returns setof uuid language sql stable as $$
  select b.account_id from balance b
  left join account_standing q on q.account_id = b.account_id
  left join (
    select s.account_id, sum((s.amount_per_hour + div(s.amount_per_month, 672) + 1)
        * (ceil(extract(epoch from clock_timestamp() - s.charged_until) / 3600) + 1)) as most
      from span s where s.ended_at is null and s.charged_until <= clock_timestamp()
        and (s.amount_per_month > 0 or s.amount_per_hour > 0) group by s.account_id) d
    on d.account_id = b.account_id,
  lateral (select b.posted + case when b.unlocked then b.credits else 0 end - coalesce(d.most, 0) as least) x
  where q.low or q.empty_since is not null or (b.topup_total > 0 and x.least < p_low)
    or (x.least <= 0 and (b.posted < 0 or d.most is not null))
$$;
