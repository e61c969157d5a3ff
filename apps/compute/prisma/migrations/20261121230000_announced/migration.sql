-- A row that a reader of the feed skipped, since it was locked, is told of by whoever had the lock: it may have been changed
-- in something that has no number, and nobody else would say it.
create or replace function vm_wanted() returns trigger language plpgsql as $$
begin
  if new.admitted and (new.generation <> old.generation or not old.admitted) then
    new.change := null;
  end if;
  if new.admitted and new.change is null then
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;

create or replace function vm_backup_wanted() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.generation <> old.generation then
    new.change := null;
  end if;
  if new.change is null then
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;

-- Every comparison with the standing of accounts looks for those that are stopped for it.
create index vm_suspended on vm (account_id) where suspended and deleted_at is null;

-- Whether a region could hold a machine of this size if nothing else were in it; true while nobody knows what it holds.
create function region_holds(r region, p_vcpu bigint, p_memory bigint, p_disk bigint, p_overcommit integer)
returns boolean language sql immutable as $$
  select coalesce(p_vcpu <= r.capacity_vcpu * p_overcommit, true) and coalesce(p_memory <= r.capacity_memory_mb, true)
    and coalesce(p_disk <= r.capacity_disk_gb, true)
$$;

-- As before, but nobody stands behind machines that are larger than the whole region: they would hold up everybody.
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
    v_queue := exists (select 1 from vm v where v.region_id = p_region and v.phase = 'queued' and not v.placed
      and v.deleted_at is null and region_holds(r, v.vcpu, v.memory_mb, v.disk_gb, p_overcommit));
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
