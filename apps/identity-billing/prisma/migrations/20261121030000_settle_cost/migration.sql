-- The same guarantees for less work a request: rules that were checked row by row are checked once a statement.

-- As before (an empty or missing setting is no account either), but what background work needs stands first, and no null is
-- made of an empty text: these are asked for every row.
do $$
declare
  v_table text;
begin
  foreach v_table in array array['account', 'api_key', 'balance', 'transfer', 'ledger_line', 'key_month', 'usage_record', 'slice', 'settlement'] loop
    execute format('alter policy tenant on %I using (%2$s) with check (%2$s)', v_table,
      format('current_setting(''app.account'', true) in (''system'', %I::text)',
        case v_table when 'account' then 'id' else 'account_id' end));
  end loop;
end $$;

-- Every statement that writes lines writes whole transfers: what it adds to a transfer sums to zero. Lines are never changed
-- or removed, so that all of them do, at any moment and not only at commit. A transition table cannot be hidden by row-level
-- security; a transfer that is hidden (another account's) is refused as one that is not there.
drop trigger ledger_balanced on ledger_line;
alter table ledger_line drop constraint ledger_line_account_id_transfer_id_fkey;
create or replace function ledger_balanced() returns trigger language plpgsql set enable_seqscan = off as $$
declare
  l record;
begin
  select f.transfer_id, f.total into l
    from (select transfer_id, account_id, sum(amount) as total from fresh group by transfer_id, account_id) f
    where f.total <> 0
      or (select t.id from transfer t where t.id = f.transfer_id and t.account_id = f.account_id) is null
    limit 1;
  if not found then
    return null;
  end if;
  if l.total <> 0 then
    raise exception 'the lines of transfer % sum to %, not to zero', l.transfer_id, l.total using errcode = 'NB500';
  end if;
  raise exception 'the account has no transfer %', l.transfer_id using errcode = 'foreign_key_violation';
end $$;
create trigger ledger_balanced after insert on ledger_line referencing new table as fresh
  for each statement execute function ledger_balanced();

-- A line is found by its transfer; nothing reads by book.
alter table ledger_line drop constraint ledger_line_pkey, add primary key (transfer_id, id);
drop index ledger_line_transfer, ledger_line_account;
-- The foreign key's; the id alone is unique as well.
alter table transfer drop constraint transfer_account_id_id_key;

-- Accounts are closed, never deleted: a row that was written for one that is there needs no lock on it.
create function refuse_delete() returns trigger language plpgsql as $$
begin
  raise exception 'rows of % are never deleted', tg_table_name using errcode = 'NB500';
end $$;
create trigger never_deleted before delete on account for each row execute function refuse_delete();
create trigger never_renamed before update of id on account for each row execute function refuse_delete();
create trigger never_truncated before truncate on account for each statement execute function refuse_delete();

create function account_known() returns trigger language plpgsql set enable_seqscan = off as $$
declare
  v_account uuid;
begin
  select f.account_id into v_account from (select distinct account_id from fresh) f
    where (select a.id from account a where a.id = f.account_id) is null limit 1;
  if found then
    raise exception 'there is no account %', v_account using errcode = 'foreign_key_violation';
  end if;
  return null;
end $$;
alter table transfer drop constraint transfer_account_id_fkey;
create trigger account_known after insert on transfer referencing new table as fresh
  for each statement execute function account_known();
alter table usage_record drop constraint usage_record_account_id_fkey;
create trigger account_known after insert on usage_record referencing new table as fresh
  for each statement execute function account_known();
create trigger account_kept before update of account_id on usage_record for each statement execute function refuse_change();

-- Rows that change with every batch find room on their own page, so that no index is written.
alter table balance set (fillfactor = 50);
alter table key_month set (fillfactor = 50);
alter table slice set (fillfactor = 50);

-- Ids in the order of time: new rows meet the same few pages of an index.
alter table transfer alter column id set default uuidv7();
alter table usage_record alter column id set default uuidv7();

-- Charges the ends of requests, each once by account and operation id, whatever is repeated or sent at once: all settlements
-- of an account take turns at its balance row. A request is paid from its slice; what that does not cover (a slice closed
-- meanwhile) is paid from what is available; the rest is the operator's loss and never a negative balance.
--
-- p_places: what many requests have in common, once: [{account_id, key_id, slice_id, key_slice_id, month, description, prices,
-- kind, model}]; p_place points into it, from 1. The other lists have one element a request as well. Answers with what is not plainly settled, by its number
-- from 1: 'account' or 'key' for what is unknown, 'lost' with what no money was left for of a request that is new. An
-- operation that stands twice in the lists breaks them all.
drop function slice_settle(uuid, text, jsonb);
create function slice_settle(
  p_router uuid, p_service text, p_places jsonb,
  p_place integer[], p_operation text[], p_amount bigint[], p_at timestamptz[], p_usage jsonb)
returns table (ord bigint, outcome text, lost bigint) language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  perform set_config('app.account', 'system', true);
  perform slice_lock(array(select distinct p.account_id from jsonb_to_recordset(p_places) as p (account_id uuid)));
  return query
  with place as materialized (
    select p.*, b.account_id is not null as has_account, k.id is not null as has_key,
      greatest(b.posted - b.held - b.leased, 0) as free, coalesce(s.amount, 0) as slice_amount,
      coalesce(q.amount, 0) as key_slice_amount,
      -- The month that the key's slice was granted in, where there is one: both change the same row.
      coalesce(q.month, p.month) as counts_in
    from rows from (jsonb_to_recordset(p_places) as (account_id uuid, key_id uuid, slice_id uuid, key_slice_id uuid,
          month date, description text, prices jsonb, kind text, model text))
        with ordinality as p (account_id, key_id, slice_id, key_slice_id, month, description, prices, kind, model, place)
      -- Each by its primary key, however small the planner thinks the table is: `limit` keeps other ways out.
      left join lateral (select * from balance x where x.account_id = p.account_id limit 1) b on true
      left join lateral (select * from api_key x where x.id = p.key_id limit 1) k on k.account_id = p.account_id
      left join lateral (select * from slice x where x.id = p.slice_id limit 1) s
        on s.account_id = p.account_id and s.router_id = p_router and s.key_id is null and s.state <> 'closed'
      left join lateral (select * from slice x where x.id = p.key_slice_id limit 1) q
        on q.account_id = p.account_id and q.router_id = p_router and q.key_id = p.key_id and q.state <> 'closed'
  ), known as materialized (
    select r.*, p.account_id, p.slice_id, p.slice_amount, p.free, p.has_account, p.has_key,
        -- One look at the index for each, whatever the planner thinks of the table's size.
        p.has_account and p.has_key and (select d.account_id from settlement d
          where d.account_id = p.account_id and d.operation_id = r.operation_id) is null as is_new
      from rows from (unnest(p_place), unnest(p_operation), unnest(p_amount), unnest(p_at), jsonb_array_elements(p_usage))
          with ordinality as r (place, operation_id, amount, at, usage, ord)
        left join place p using (place)
  ), covered as (
    -- In the order of the batch: each gets what those before it have left of the slice. Only accounts with a slice that does
    -- not cover all that is to be paid from it: in the others, nearly all, it does not matter who comes first.
    select ord, account_id, amount, free, greatest(0, least(amount,
        slice_amount + amount - sum(amount) over (partition by account_id, slice_id order by ord)))::bigint as from_slice
      from known where is_new and account_id in (
        select account_id from known where is_new
          group by account_id, slice_id having sum(amount) > max(slice_amount))
  ), parts as materialized (
    select ord, from_slice, from_slice + greatest(0, least(amount - from_slice,
        free + amount - from_slice - sum(amount - from_slice) over (partition by account_id order by ord)))::bigint as charge
      from covered
  ), charged as materialized (
    select k.ord, k.operation_id, k.amount, k.at, k.usage, p.*, uuidv7() as id,
        coalesce(c.from_slice, k.amount) as from_slice, coalesce(c.charge, k.amount) as charge
      from known k join place p using (place) left join parts c using (ord)
      where k.is_new order by k.ord
  ), settled as (
    insert into settlement (account_id, operation_id, router_id, slice_id, key_id, month, amount, lost, at)
      select account_id, operation_id, p_router, slice_id, key_id, counts_in, amount, amount - charge, at from charged
  ), money as (
    update balance b set posted = b.posted - c.charge, leased = b.leased - c.from_slice
      from (select account_id, sum(charge)::bigint as charge, sum(from_slice)::bigint as from_slice
        from charged group by account_id) c
      where b.account_id = c.account_id
  ), key_parts as (
    select account_id, key_id, counts_in, key_slice_id, sum(charge) as charge, least(sum(amount), max(key_slice_amount)) as part
      from charged group by account_id, key_id, counts_in, key_slice_id
  ), slices as (
    -- Without `changed_at`: it is in an index, and each settlement would write to all five.
    update slice s set amount = s.amount - c.part,
        in_use = least(s.amount - c.part, greatest(0, s.in_use - c.ended))
      from (
        select slice_id as id, sum(from_slice)::bigint as part, least(sum(amount), 9e18)::bigint as ended
          from charged where from_slice > 0 group by slice_id
        union all
        select key_slice_id, part::bigint, part::bigint from key_parts where part > 0
      ) c where s.id = c.id
  ), months as (
    -- A key with a slice has its row, so `leased` is never inserted but zero.
    insert into key_month as m (account_id, key_id, month, used, captured, leased)
      select account_id, key_id, counts_in, sum(charge)::bigint, sum(charge)::bigint, sum(part)::bigint
        from key_parts group by account_id, key_id, counts_in
      on conflict (key_id, month) do update set used = m.used + excluded.used, captured = m.captured + excluded.captured,
        leased = m.leased - excluded.leased
  ), transfers as (
    insert into transfer (id, account_id, kind, source_service, source_id, description, prices)
      select id, account_id, 'charge', p_service, operation_id, description, prices from charged where charge > 0
  ), lines as (
    insert into ledger_line (transfer_id, account_id, book, amount)
      select c.id, c.account_id, l.book, l.amount
        from charged c, lateral (values ('money', -c.charge), ('revenue', c.charge)) as l (book, amount) where c.charge > 0
  ), usage as (
    -- With the id of the transfer: one is enough.
    insert into usage_record (id, account_id, operation_id, kind, key_id, model, amount, facts, created_at)
      select id, account_id, operation_id, kind, key_id, model, charge, usage, least(at, clock_timestamp()) from charged
  )
  select ord, case when has_account then 'key' else 'account' end, 0::bigint from known
    where not coalesce(has_account and has_key, false)
  union all
  select ord, 'lost', amount - charge from charged where charge < amount;
end $$;
