-- Floating IPs on interfaces, NAT gateways, reserved addresses of interfaces, ranges of address pools.

alter table vpc add column observed_facts jsonb;

alter table port add column project_id uuid;
-- A reserved IP on the MAC of an interface: the interface's port has the address as long as it lives, and is the one that
-- counts; when it goes, the reservation counts by itself again.
alter table port add column bound_to uuid references port (id) on delete set null;
alter table port drop constraint port_address;
alter table port drop constraint port_mac;
create unique index port_address on port (vpc_id, address) where bound_to is null;
create unique index port_mac on port (vpc_id, mac) where bound_to is null;
create unique index port_reserved_mac on port (vpc_id, mac) where kind = 'reserved_ip';
create unique index port_bound on port (bound_to) where bound_to is not null;
create trigger port_moved after update of address on port for each row execute function port_wanted();

-- Addresses that a guest may still have by an earlier lease: no claim gets them until then.
create table resting_address (
  vpc_id uuid not null,
  address inet not null,
  until timestamptz not null,
  primary key (vpc_id, address)
);

-- Intent: `port_id`, what it is attached to. Observation: `status`, written by its life. `vpc_id` is the network that has it or
-- may still have it, from its generation `wanted_generation` on as this row says.
alter table floating_ip
  add column target_kind text not null default 'interface' check (target_kind in ('interface', 'vpc_nat')),
  add column vpc_id uuid,
  add column port_id uuid references port (id),
  add column wanted_generation integer,
  add column auto_release boolean not null default false,
  add column status text not null default 'available',
  add column last_error text,
  -- Given up by its owner while a region may still have it: nobody gets the address before that region says otherwise.
  add column released_at timestamptz;
create unique index floating_ip_port on floating_ip (port_id) where port_id is not null;
create index floating_ip_vpc on floating_ip (vpc_id) where vpc_id is not null;

-- The gateway of a VPC; its id is its port's.
create table nat_gateway (
  id uuid primary key references port (id),
  account_id uuid not null,
  vpc_id uuid not null unique references vpc (id),
  fip_id uuid not null unique references floating_ip (id),
  address inet not null,
  -- Intent.
  enabled boolean not null default true,
  wanted_generation integer not null,
  -- Written by its life.
  status text not null default 'attaching',
  last_error text,
  created_at timestamptz not null default now()
);

do $$
begin
  alter table nat_gateway enable row level security;
  alter table nat_gateway force row level security;
  create policy tenant on nat_gateway using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
    with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
end $$;

-- Those who wait for a state hear of every change of it.
create function floating_ip_said() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or (new.status, new.last_error, new.released_at) is distinct from (old.status, old.last_error, old.released_at) then
    perform changed('floating_ip:' || old.id);
  end if;
  return null;
end $$;
create trigger floating_ip_said after update or delete on floating_ip for each row execute function floating_ip_said();

create or replace function floating_ip_owner(wanted uuid) returns uuid language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return (select account_id from floating_ip where id = wanted and released_at is null);
end $$;

-- Ranges that a region's pool was made of. Not tenant data.
create table pool_range (
  region_id uuid not null,
  range cidr not null,
  created_at timestamptz not null default now(),
  primary key (region_id, range)
);

-- A row that a reader of the feed skipped, since it was locked, is told of by whoever had the lock.
create or replace function vpc_wanted() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or new.generation <> old.generation then
    new.change := null;
  end if;
  if new.change is null then
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;
