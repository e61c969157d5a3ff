-- Charges the ends of requests, each once by account and operation id, whatever is repeated or sent at once: all settlements
-- of an account take turns at its balance row. A request is paid from its slice; what that does not cover (a slice closed
-- meanwhile) is paid from what is available; the rest is the operator's loss and never a negative balance.
--
-- p_rows: [{ord, operation_id, account_id, key_id, slice_id, key_slice_id, month, amount, description, prices, usage, at}].
-- Answers for each: 'settled', or 'account' or 'key' for what is unknown; what was lost of it now; whether it is new.
create function slice_settle(p_router uuid, p_service text, p_rows jsonb)
returns table (ord integer, outcome text, lost bigint, fresh boolean) language plpgsql as $$
#variable_conflict use_column
begin
  perform set_config('app.account', 'system', true);
  perform slice_lock(array(select distinct r.account_id from jsonb_to_recordset(p_rows) as r (account_id uuid)));
  return query
  with known as materialized (
    select r.*, b.account_id is not null as has_account, k.id is not null as has_key, d.operation_id is not null as is_done,
      greatest(b.posted - b.held - b.leased, 0) as free, coalesce(s.amount, 0) as slice_amount,
      coalesce(q.amount, 0) as key_slice_amount,
      -- The month that the key's slice was granted in, where there is one: both change the same row.
      coalesce(q.month, r.month) as counts_in
    from jsonb_to_recordset(p_rows) as r (
        ord integer, operation_id text, account_id uuid, key_id uuid, slice_id uuid, key_slice_id uuid, month date,
        amount bigint, description text, prices jsonb, usage jsonb, at timestamptz)
      left join balance b on b.account_id = r.account_id
      left join api_key k on k.account_id = r.account_id and k.id = r.key_id
      left join settlement d on d.account_id = r.account_id and d.operation_id = r.operation_id
      left join slice s on s.id = r.slice_id and s.account_id = r.account_id and s.router_id = p_router
        and s.key_id is null and s.state <> 'closed'
      left join slice q on q.id = r.key_slice_id and q.account_id = r.account_id and q.router_id = p_router
        and q.key_id = r.key_id and q.state <> 'closed'
  ), new_ones as (
    select distinct on (account_id, operation_id) * from known
      where has_account and has_key and not is_done order by account_id, operation_id, ord
  ), covered as (
    -- In the order of the batch: each gets what those before it have left of the slice.
    select *, greatest(0, least(amount,
        slice_amount + amount - sum(amount) over (partition by account_id, slice_id order by ord)))::bigint as from_slice
      from new_ones
  ), charged as materialized (
    select *, from_slice + greatest(0, least(amount - from_slice,
        free + amount - from_slice - sum(amount - from_slice) over (partition by account_id order by ord)))::bigint as charge
      from covered
  ), settled as (
    insert into settlement (account_id, operation_id, router_id, slice_id, key_id, month, amount, lost, at)
      select account_id, operation_id, p_router, slice_id, key_id, counts_in, amount, amount - charge, at from charged
  ), money as (
    update balance b set posted = b.posted - c.charge, leased = b.leased - c.from_slice
      from (select account_id, sum(charge)::bigint as charge, sum(from_slice)::bigint as from_slice
        from charged group by account_id) c
      where b.account_id = c.account_id
  ), slices as (
    update slice s set amount = s.amount - c.from_slice, changed_at = clock_timestamp(),
        in_use = least(s.amount - c.from_slice, greatest(0, s.in_use - c.amount))
      from (select slice_id, sum(from_slice)::bigint as from_slice, least(sum(amount), 9e18)::bigint as amount
        from charged where from_slice > 0 group by slice_id) c
      where s.id = c.slice_id
  ), key_parts as (
    select account_id, key_id, counts_in, key_slice_id, sum(charge) as charge, least(sum(amount), max(key_slice_amount)) as part
      from charged group by account_id, key_id, counts_in, key_slice_id
  ), key_slices as (
    update slice s set amount = s.amount - c.part::bigint, changed_at = clock_timestamp(),
        in_use = least(s.amount - c.part::bigint, greatest(0, s.in_use - c.part::bigint))
      from key_parts c where s.id = c.key_slice_id and c.part > 0
  ), months as (
    -- A key with a slice has its row, so `leased` is never inserted but zero.
    insert into key_month as m (account_id, key_id, month, used, captured, leased)
      select account_id, key_id, counts_in, sum(charge)::bigint, sum(charge)::bigint, sum(part)::bigint
        from key_parts group by account_id, key_id, counts_in
      on conflict (key_id, month) do update set used = m.used + excluded.used, captured = m.captured + excluded.captured,
        leased = m.leased - excluded.leased
  ), transfers as (
    insert into transfer (account_id, kind, source_service, source_id, description, prices)
      select account_id, 'charge', p_service, operation_id, description, prices from charged where charge > 0 order by ord
      returning id, account_id, source_id
  ), lines as (
    insert into ledger_line (transfer_id, account_id, book, amount)
      select t.id, t.account_id, l.book, l.amount
        from transfers t join charged c on c.account_id = t.account_id and c.operation_id = t.source_id,
          lateral (values ('money', -c.charge), ('revenue', c.charge)) as l (book, amount)
  ), usage as (
    insert into usage_record (account_id, operation_id, kind, key_id, model, amount, facts, created_at)
      select account_id, operation_id, usage ->> 'kind', key_id, usage ->> 'model', charge, usage, least(at, clock_timestamp())
        from charged order by ord
  )
  select k.ord,
    case when not k.has_account then 'account' when not k.has_key then 'key' else 'settled' end,
    coalesce(c.amount - c.charge, 0), c.ord is not null
    from known k left join charged c on c.ord = k.ord order by k.ord;
end $$;
