-- Whose a project is, for those who are about to put something into it (it serves all accounts): asked with every order.
-- `settled`: whether nobody is just deleting it.
create function project_owner(wanted uuid, settled boolean) returns table (account_id uuid, is_free boolean) language plpgsql as $$
declare v_free boolean := true;
begin
  perform set_config('app.account', 'system', true);
  if settled then
    perform 1 from project p where p.id = wanted for key share skip locked;
    v_free := found;
  end if;
  return query select p.account_id, v_free from project p where p.id = wanted;
end $$;
