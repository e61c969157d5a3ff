-- What a region has room for, machines that wait for it, machines billed by the second, changes of size, floating IPs of
-- interfaces, accounts that are suspended.

select set_config('app.account', 'system', true);

-- What the region's agent said when it took the region; null: nobody knows, and nothing is refused for it.
alter table region
  add column capacity_vcpu bigint,
  add column capacity_memory_mb bigint,
  add column capacity_disk_gb bigint;

-- What its machines take, the sum over `vm` where `placed`; kept by a trigger. Whoever gives a place locks the row first.
create table region_use (
  region_id uuid primary key references region (id) on delete cascade,
  vcpu bigint not null default 0,
  memory_mb bigint not null default 0,
  disk_gb bigint not null default 0,
  machines bigint not null default 0,
  -- Machines that wait for a place.
  queued bigint not null default 0
) with (fillfactor = 50);
insert into region_use (region_id) select id from region;
create function region_added() returns trigger language plpgsql as $$
begin
  insert into region_use (region_id) values (new.id);
  return null;
end $$;
create trigger region_added after insert on region for each row execute function region_added();

alter table vm
  add column ephemeral boolean not null default false,
  -- Has its place in the region, from the admission until the region has confirmed that nothing of it is left.
  add column placed boolean not null default false,
  add column queued_at timestamptz,
  -- The beginning of the period that is paid.
  add column paid_from timestamptz,
  -- Could not be made, and its place and addresses are given back.
  add column cleared boolean not null default false,
  -- Its account is suspended: stopped whatever `power` says.
  add column suspended boolean not null default false;
update vm set placed = true where admitted and not (gone and observed_state = 'gone');
update vm set paid_from = created_at where paid_until is not null;
create index vm_queued on vm (region_id, queued_at, id) where phase = 'queued' and not placed and deleted_at is null;
create index vm_account on vm (account_id) where deleted_at is null;

update region_use u set vcpu = s.vcpu, memory_mb = s.memory_mb, disk_gb = s.disk_gb, machines = s.machines
  from (select region_id, sum(vcpu) as vcpu, sum(memory_mb) as memory_mb, sum(disk_gb) as disk_gb, count(*) as machines
    from vm where placed group by region_id) s
  where s.region_id = u.region_id;

-- Machines that wait are looked at again when there may be room or somebody has left the queue.
create function vm_use() returns trigger language plpgsql as $$
declare
  a vm;
  b vm;
  v_region uuid;
  v_vcpu bigint;
  v_memory bigint;
  v_disk bigint;
  v_machines bigint;
  v_queued bigint;
  v_left bigint;
begin
  if tg_op <> 'INSERT' then b := old; end if;
  if tg_op <> 'DELETE' then a := new; end if;
  v_region := coalesce(a.region_id, b.region_id);
  v_machines := coalesce(a.placed::int, 0) - coalesce(b.placed::int, 0);
  v_vcpu := coalesce(a.placed::int * a.vcpu, 0) - coalesce(b.placed::int * b.vcpu, 0);
  v_memory := coalesce(a.placed::int * a.memory_mb, 0) - coalesce(b.placed::int * b.memory_mb, 0);
  v_disk := coalesce(a.placed::int * a.disk_gb, 0) - coalesce(b.placed::int * b.disk_gb, 0);
  v_queued := coalesce((a.phase = 'queued' and not a.placed and a.deleted_at is null)::int, 0)
    - coalesce((b.phase = 'queued' and not b.placed and b.deleted_at is null)::int, 0);
  if v_machines = 0 and v_vcpu = 0 and v_memory = 0 and v_disk = 0 and v_queued = 0 then
    return null;
  end if;
  update region_use set vcpu = vcpu + v_vcpu, memory_mb = memory_mb + v_memory, disk_gb = disk_gb + v_disk,
    machines = machines + v_machines, queued = queued + v_queued
    where region_id = v_region returning queued into v_left;
  if v_left > 0 and (v_vcpu < 0 or v_memory < 0 or v_disk < 0 or v_queued <> 0) then
    update lifecycle set wakes = wakes + 1, run_at = now()
      where kind = 'region_queue' and id = v_region and ended_at is null;
  end if;
  return null;
end $$;
create trigger vm_use after insert or delete or update of placed, vcpu, memory_mb, disk_gb, phase, deleted_at on vm
  for each row execute function vm_use();

-- Whether a region has room, and if not, what it lacks: vcpu, memory, disk, or queue when others wait and this one must stand
-- behind them. The region's row stays locked until the transaction ends, so that whoever then takes the place is alone.
create function vm_room(
  p_region uuid, p_vcpu integer, p_memory integer, p_disk integer, p_overcommit integer, p_behind boolean)
returns text language plpgsql as $$
declare
  u region_use;
  r region;
begin
  select * into u from region_use where region_id = p_region for update;
  select * into r from region where id = p_region;
  return case
    when p_behind and u.queued > 0 then 'queue'
    -- What is not asked for is not refused: a region may have become smaller than what it holds.
    when p_vcpu > 0 and u.vcpu + p_vcpu > r.capacity_vcpu * p_overcommit then 'vcpu'
    when p_memory > 0 and u.memory_mb + p_memory > r.capacity_memory_mb then 'memory'
    when p_disk > 0 and u.disk_gb + p_disk > r.capacity_disk_gb then 'disk'
  end;
end $$;

alter table vm_interface
  -- A floating IP of its own was ordered with it; its id there, and what it was when it was attached.
  add column floating_ip boolean not null default false,
  add column fip_id uuid,
  add column fip jsonb;

-- The span at identity-billing of a machine that is billed by the second; outlives the machine until it is closed there.
create table vm_span (
  id uuid primary key,
  account_id uuid not null,
  vm_id uuid not null unique,
  description text not null,
  -- 10⁻⁹ rubles: the plan's, and that of disk beyond the plan.
  amount_per_hour numeric not null,
  amount_per_month numeric not null,
  prices jsonb not null,
  started_at timestamptz not null,
  ended_at timestamptz
);

-- Changes of size. The id is the reservation's; what stands here is what it was before and shall be. `open` until it is paid,
-- `paid` until the region has made it so; then `done`, or `undone` when it is paid back.
create table vm_resize (
  id uuid primary key,
  account_id uuid not null,
  vm_id uuid not null references vm (id) on delete cascade,
  state text not null default 'open',
  amount numeric not null,
  -- The period that it was priced for.
  paid_until timestamptz,
  -- The machine's generation that has it, once it is paid.
  generation integer,
  from_plan_id uuid not null,
  from_vcpu integer not null,
  from_memory_mb integer not null,
  from_disk_gb integer not null,
  plan_id uuid not null,
  vcpu integer not null,
  memory_mb integer not null,
  disk_gb integer not null,
  created_at timestamptz not null default now()
);
-- The beginning of the period that a renewal pays; null: the end of the one before.
alter table vm_renewal add column starts timestamptz;

create unique index vm_resize_one on vm_resize (vm_id) where state in ('open', 'paid');
create index vm_resize_vm on vm_resize (vm_id);

do $$
declare name text;
begin
  foreach name in array array['vm_span', 'vm_resize'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- The generation since which nothing but the size has changed: what the region said since then of the machine's power is true,
-- although it has not yet heard of the size.
alter table vm add column power_generation integer not null default 1;
update vm set power_generation = generation;
create function vm_power() returns trigger language plpgsql as $$
begin
  if (new.power, new.suspended, new.boot, new.restore_number, new.gone)
      is distinct from (old.power, old.suspended, old.boot, old.restore_number, old.gone) then
    new.power_generation := new.generation;
  end if;
  return new;
end $$;
create trigger vm_power before update on vm for each row execute function vm_power();

-- A change of size that is paid looks again at what the region says, and at the end of its machine.
create function vm_resizing() returns trigger language plpgsql as $$
begin
  if (new.observed_generation, new.observed_state, new.observed_facts, new.deleted_at)
      is distinct from (old.observed_generation, old.observed_state, old.observed_facts, old.deleted_at) then
    update lifecycle set wakes = wakes + 1, run_at = now()
      where kind = 'vm_resize' and ended_at is null
        and id = (select r.id from vm_resize r where r.vm_id = new.id and r.state in ('open', 'paid'));
  end if;
  return null;
end $$;
create trigger vm_resizing after update on vm for each row execute function vm_resizing();
