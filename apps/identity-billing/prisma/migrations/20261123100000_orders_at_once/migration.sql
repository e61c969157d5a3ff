-- A reservation for an order: the project that it goes to is there, is the account's and nobody is deleting it, and the prices
-- that it was made of are still in force; all in one statement. A repeat answers the present state, whatever became of them.
create function money_order(
  p_account uuid, p_operation text, p_service text, p_kind text, p_key uuid, p_amount bigint, p_description text,
  p_prices jsonb, p_seconds integer, p_project uuid)
returns setof reservation
language plpgsql as $$
begin
  perform set_config('app.account', p_account::text, true);
  if not exists (select 1 from reservation r where r.account_id = p_account and r.operation_id = p_operation) then
    perform 1 from project p where p.id = p_project and p.account_id = p_account for key share skip locked;
    if not found then
      if exists (select 1 from project p where p.id = p_project and p.account_id = p_account) then
        raise exception 'project_busy' using errcode = 'NB409';
      end if;
      raise exception 'project_id' using errcode = 'NB404';
    end if;
    if exists (
      select 1 from jsonb_to_recordset(p_prices) as used (id text, version integer)
      where used.version is distinct from (select max(c.version) from price c where c.id = used.id)
    ) then
      raise exception 'price_changed' using errcode = 'NB409';
    end if;
  end if;
  return query select * from money_reserve(
    p_account, p_operation, p_service, p_kind, p_key, p_amount, p_description, p_prices, p_seconds);
end $$;
