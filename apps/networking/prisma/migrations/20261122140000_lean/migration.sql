-- The feed of a region with the numbers that are due. Where none is, nothing is locked or written: most questions of an agent
-- find nothing. A change that commits meanwhile notifies.
create function feed_now(region uuid) returns feed language plpgsql as $$
declare found feed;
begin
  if not exists (select 1 from vpc where region_id = region and change is null) then
    select * into found from feed where name = 'wanted:' || region;
    if found.name is not null then
      return found;
    end if;
  end if;
  return number_wanted(region);
end $$;

-- Room in the page for the versions that a network goes through as its ports come and go.
alter table vpc set (fillfactor = 70);
alter table feed set (fillfactor = 20);
