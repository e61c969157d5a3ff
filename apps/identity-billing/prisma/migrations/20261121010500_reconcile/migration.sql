-- Recomputes every guarded row from what it stands for and answers where they differ. Nothing is mended here: a difference
-- is an error in the code or a hand in the database, and a person must see it. One statement, so one snapshot.
create function ledger_reconcile()
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
  ), months as (
    select r.key_id, r.month, r.account_id,
      coalesce(sum(case r.state when 'held' then r.amount when 'captured' then r.captured else 0 end), 0) as used,
      coalesce(sum(r.captured) filter (where r.state = 'captured'), 0) as captured
    from reservation r where r.key_id is not null group by r.key_id, r.month, r.account_id
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
    from balance b left join books k using (account_id) left join holds h using (account_id),
      lateral (values
        ('balance.posted', b.posted::numeric, coalesce(k.posted, 0)),
        ('balance.held', b.held, coalesce(k.held, 0)),
        ('balance.held by reservations', b.held, coalesce(h.held, 0)),
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
    from key_month k full join months m on m.key_id = k.key_id and m.month = k.month,
      lateral (values
        ('used', coalesce(k.used, 0)::numeric, coalesce(m.used, 0)),
        ('captured', coalesce(k.captured, 0), coalesce(m.captured, 0))
      ) as c (what, recorded, computed)
    union all
    select s.account_id, 'span ' || s.operation_id, s.charged, coalesce(c.charged, 0)
    from span s left join charges c using (account_id, operation_id)
    union all
    select b.account_id, 'earned by captures and spans', coalesce(e.amount, 0),
      coalesce(c.kept, 0) + coalesce(s.charged, 0)
    from balance b left join earned e using (account_id) left join captures c using (account_id)
      left join span_money s using (account_id)
    union all
    select min(l.account_id::text)::uuid, 'transfer ' || l.transfer_id, 0, sum(l.amount)
    from ledger_line l group by l.transfer_id having sum(l.amount) <> 0
  )
  select x.account_id, x.subject, x.recorded::numeric, x.computed::numeric
  from compared x where x.recorded <> x.computed order by x.account_id, x.subject;
end $$;
