-- What one machine costs by count (docs/decisions/046): fewer rewrites of its row, and nothing written where nothing is new.

-- The phase changes with every step: in the condition of an index it had every index of the row written anew. When it began to
-- wait stands in the row as long as it waits.
update vm set queued_at = null where phase <> 'queued';
create index vm_waiting on vm (region_id, queued_at, id) where queued_at is not null;
drop index vm_queued;

-- Room in the page for the versions that a machine goes through while it is made.
alter table vm set (fillfactor = 70);
alter table vm_interface set (fillfactor = 80);
alter table feed set (fillfactor = 20);

create or replace function vm_room(
  p_region uuid, p_vcpu integer, p_memory integer, p_disk integer, p_overcommit integer, p_behind boolean)
returns text language plpgsql as $$
declare
  u region_use;
  r region;
  v_account text := current_setting('app.account', true);
  v_queue boolean := false;
begin
  select * into u from region_use where region_id = p_region for update;
  select * into r from region where id = p_region;
  if p_behind and u.queued > 0 then
    -- Those of all accounts.
    perform set_config('app.account', 'system', true);
    v_queue := exists (select 1 from vm v where v.region_id = p_region and v.queued_at is not null and v.phase = 'queued'
      and not v.placed and v.deleted_at is null
      and region_holds(r, v.vcpu, v.memory_mb, v.disk_gb, p_overcommit));
    perform set_config('app.account', coalesce(v_account, ''), true);
  end if;
  return case
    when v_queue then 'queue'
    -- What is not asked for is not refused: a region may have become smaller than what it holds.
    when p_vcpu > 0 and u.vcpu + p_vcpu > r.capacity_vcpu * p_overcommit then 'vcpu'
    when p_memory > 0 and u.memory_mb + p_memory > r.capacity_memory_mb then 'memory'
    when p_disk > 0 and u.disk_gb + p_disk > r.capacity_disk_gb then 'disk'
  end;
end $$;

-- The feed of a region with the numbers that are due. Where none is, nothing is locked or written: most questions of an agent
-- find nothing. A change that commits meanwhile notifies. `skipped`: somebody has locked what has no number yet, and may let
-- go of it without changing anything, so without a word.
create function feed_now(p_region uuid) returns table (name text, nonce text, top bigint, pruned bigint, skipped boolean)
language plpgsql as $$
declare
  f feed;
  v_news boolean := exists (select 1 from vm v where v.region_id = p_region and v.change is null and v.admitted)
    or exists (select 1 from vm_backup b where b.region_id = p_region and b.change is null);
begin
  select * into f from feed where feed.name = 'wanted:' || p_region;
  if v_news or f.name is null then
    perform number_backups(p_region);
    f := number_wanted(p_region);
    v_news := exists (select 1 from vm v where v.region_id = p_region and v.change is null and v.admitted)
      or exists (select 1 from vm_backup b where b.region_id = p_region and b.change is null);
  end if;
  return query select f.name, f.nonce, f.top, f.pruned, v_news;
end $$;

-- Whoever waits for a status looks again when it may be another one. Until it has run once the phase alone says it.
create function vm_word(v vm) returns text language sql immutable as $$
  select case
    when v.deleted_at is not null then 'deleting'
    when v.phase in ('ordered', 'queued', 'attaching') then 'pending'
    when v.phase = 'provisioning' then 'provisioning'
    when v.phase in ('refunding', 'error') then 'error'
  end
$$;
create or replace function vm_changed() returns trigger language plpgsql as $$
begin
  if tg_op <> 'UPDATE' then
    perform changed('vm:' || old.id);
  elsif vm_word(new) is distinct from vm_word(old) or vm_word(new) is null
      and (new.phase, new.power, new.suspended, new.boot, new.generation, new.restore_sha256, new.observed_generation, new.observed_state,
        new.observed_facts, new.reason)
      is distinct from
      (old.phase, old.power, old.suspended, old.boot, old.generation, old.restore_sha256, old.observed_generation, old.observed_state,
        old.observed_facts, old.reason) then
    perform changed('vm:' || new.id);
  end if;
  return null;
end $$;

-- Whether an account has a machine of that name in a project, in one round trip.
create function vm_name_taken(p_account uuid, p_project uuid, p_name text) returns boolean language plpgsql as $$
begin
  perform set_config('app.account', p_account::text, true);
  return exists (select 1 from vm v where v.account_id = p_account and v.project_id = p_project and v.name_key = p_name
    and not v.unlisted);
end $$;
