-- Whose a VPC is and where it lies: what is put into it must lie in the same region.
create function vpc_home(wanted uuid) returns table (account_id uuid, region_id uuid) language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return query select v.account_id, v.region_id from vpc v where v.id = wanted and v.deleted_at is null;
end $$;
