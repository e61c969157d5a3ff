-- What an account owns. Intent (what the API wrote) and observation (what the region reported) are separate columns.

create table vpc (
  id uuid primary key,
  account_id uuid not null,
  region_id uuid not null,
  name text not null,
  -- The name as it is compared: case and Unicode form folded by the service, since lower() depends on the locale.
  name_key text not null,
  subnet cidr not null,
  is_default boolean not null default false,
  deleted_at timestamptz,
  created_at timestamptz not null default now(),
  -- Written by the lifecycle only.
  status text not null default 'pending',
  status_reason text,
  -- Wanted of the region: rises with every change of the network or of its ports.
  generation integer not null default 1,
  change bigint,
  -- Observed by the region.
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_at timestamptz,
  received_at timestamptz
);
create unique index vpc_name on vpc (account_id, region_id, name_key) where deleted_at is null;
create unique index vpc_default on vpc (account_id, region_id) where is_default and deleted_at is null;
create index vpc_listed on vpc (account_id, created_at, id) where deleted_at is null;
create index vpc_changed on vpc (region_id, change);
create index vpc_unnumbered on vpc (region_id) where change is null;

-- An address and a MAC in a VPC; its id is the operation id of its claim.
create table port (
  id uuid primary key,
  account_id uuid not null,
  vpc_id uuid not null references vpc (id),
  kind text not null check (kind in ('vm_interface', 'replica', 'reserved_ip', 'nat_gateway')),
  -- `kind:id` of what sits on it.
  owner text not null,
  -- Of a reserved IP.
  name text,
  address inet not null,
  mac macaddr not null,
  -- What the claim asked for: a repeat must ask for the same.
  request jsonb not null,
  created_at timestamptz not null default now(),
  constraint port_address unique (vpc_id, address),
  constraint port_mac unique (vpc_id, mac)
);
create index port_reserved on port (vpc_id, created_at, id) where kind = 'reserved_ip';

-- Row-level security: the second belt. The service's role owns nothing, so FORCE binds everyone but a superuser.
do $$
declare name text;
begin
  foreach name in array array['vpc', 'port'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- Not tenant data.

-- Claims that were taken back: one that arrives late must make nothing. Forgotten after a week.
create table released_port (
  id uuid primary key,
  at timestamptz not null default now()
);
create index released_port_at on released_port (at);

-- The highest epoch that an agent of a region has shown; older agents are refused.
create table region_agent (
  region_id uuid primary key,
  epoch bigint not null,
  seen_at timestamptz not null default now()
);

-- Change feeds `wanted:<region>`. A cursor is <nonce>.<number>; another nonce (restored database) or a number below
-- `pruned` asks for everything.
create table feed (
  name text primary key,
  nonce text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
  top bigint not null default 0,
  pruned bigint not null default 0
);

-- Numbers of changes are given when a feed is READ, under the feed's row lock, to rows whose transaction has committed.
-- A number given at write time becomes visible out of order, and a reader that has seen 8 would never see a late 7.
create sequence change_number;
-- The first number given is 2: an unused sequence says last_value 1, which is then the `top` of a feed with nothing in it.
select setval('change_number', 1);

create function number_wanted(region uuid) returns feed language plpgsql as $$
declare found feed;
begin
  insert into feed (name) values ('wanted:' || region) on conflict do nothing;
  select * into found from feed where name = 'wanted:' || region for update;
  -- A row that is locked now is being changed again: its commit notifies, and the next reader numbers it.
  update vpc set change = nextval('change_number')
    where id in (select id from vpc where region_id = region and change is null for update skip locked);
  update feed set top = (select last_value from change_number) where name = found.name returning * into found;
  return found;
end $$;

create function changed(topic text) returns void language sql as $$
  select pg_notify(current_schema || '_changed', topic)
$$;

create function vpc_wanted() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or new.generation <> old.generation then
    new.change := null;
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;
create trigger vpc_wanted before insert or update on vpc for each row execute function vpc_wanted();

-- Those who wait for a state hear of every change of it.
create function vpc_said() returns trigger language plpgsql as $$
begin
  if (new.status, new.status_reason, new.deleted_at) is distinct from (old.status, old.status_reason, old.deleted_at) then
    perform changed('vpc:' || new.id);
  end if;
  return null;
end $$;
create trigger vpc_said after update on vpc for each row execute function vpc_said();

-- Every change of a port is a change of its VPC's wanted network.
create function port_wanted() returns trigger language plpgsql as $$
begin
  update vpc set generation = generation + 1 where id = coalesce(new.vpc_id, old.vpc_id);
  return null;
end $$;
create trigger port_wanted after insert or delete on port for each row execute function port_wanted();

-- Owner of a VPC, for the gateway's check before every operation (it serves all accounts).
create function vpc_owner(wanted uuid) returns uuid language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return (select account_id from vpc where id = wanted and deleted_at is null);
end $$;
