-- The feed of a region with the numbers that are due. Where none is, nothing is locked or written: most questions of an agent
-- find nothing. A change that commits meanwhile notifies. `skipped`: somebody has locked what has no number yet, and may let
-- go of it without changing anything, so without a word.
create function feed_now(p_region uuid) returns table (name text, nonce text, top bigint, pruned bigint, skipped boolean)
language plpgsql as $$
declare
  f feed;
  v_news boolean := exists (select 1 from vpc v where v.region_id = p_region and v.change is null);
begin
  select * into f from feed where feed.name = 'wanted:' || p_region;
  if v_news or f.name is null then
    f := number_wanted(p_region);
    v_news := exists (select 1 from vpc v where v.region_id = p_region and v.change is null);
  end if;
  return query select f.name, f.nonce, f.top, f.pruned, v_news;
end $$;

-- Room in the page for the versions that a network goes through as its ports come and go.
alter table vpc set (fillfactor = 70);
alter table feed set (fillfactor = 20);
