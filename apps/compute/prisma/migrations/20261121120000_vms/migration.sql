-- What an account owns. Intent (what the API wrote) and observation (what the region reported) are separate columns.

create table ssh_key (
  id uuid primary key,
  account_id uuid not null,
  name text not null,
  public_key text not null,
  -- SHA256:… of the key's bytes; one key is there once for an account.
  fingerprint text not null,
  created_at timestamptz not null default now(),
  unique (account_id, fingerprint)
);
create index ssh_key_listed on ssh_key (account_id, created_at, id);

-- Not tenant data: what every account may order.
create table vm_plan (
  id uuid primary key,
  -- Its prices are `vm.<name>.month` and `.hour` at identity-billing.
  name text not null unique,
  vcpu integer not null,
  memory_mb integer not null,
  disk_gb integer not null,
  max_disk_gb integer not null,
  created_at timestamptz not null default now()
);

create table image (
  id uuid primary key,
  slug text not null,
  version text not null,
  name text not null,
  kind text not null default 'os',
  os_family text not null,
  filename text not null,
  description text,
  min_disk_gb integer not null default 1,
  created_at timestamptz not null default now(),
  unique (slug, version, filename)
);

-- Regions that have an image.
create table image_region (
  image_id uuid not null references image (id) on delete cascade,
  region_id uuid not null references region (id) on delete cascade,
  primary key (image_id, region_id)
);

create table vm (
  id uuid primary key,
  account_id uuid not null,
  project_id uuid not null,
  region_id uuid not null references region (id),
  image_id uuid not null references image (id),
  plan_id uuid not null references vm_plan (id),
  name text not null,
  name_key text not null,
  hostname text not null,
  default_user text not null,
  vcpu integer not null,
  memory_mb integer not null,
  disk_gb integer not null,
  backup_count integer not null default 0,
  install_guest_agent boolean not null,
  ssh_keys text[] not null default '{}',
  -- The user's cloud-init, sealed: it often holds passwords.
  user_data bytea,
  -- Money: the id of the reservation is the machine's.
  auto_renew boolean not null,
  period_months integer,
  period_days integer,
  amount numeric not null,
  paid_until timestamptz,
  -- Paid back, or never charged.
  refunded boolean not null default false,
  -- Where the life stands; written by the lifecycle only, with the reason of a failure or a missed deadline.
  phase text not null default 'ordered',
  reason text,
  -- The region has run it once.
  provisioned_at timestamptz,
  -- Intent.
  power text not null default 'running',
  boot integer not null default 1,
  deleted_at timestamptz,
  -- Deleted before a region knew of it: gone for its owner, kept until its money is settled.
  unlisted boolean not null default false,
  -- Wanted of the region: nothing before it is admitted (paid, with its ports). `handed` once an agent may have read it.
  admitted boolean not null default false,
  handed boolean not null default false,
  gone boolean not null default false,
  generation integer not null default 1,
  change bigint,
  -- Observed by the region.
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_facts jsonb,
  observed_at timestamptz,
  received_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create unique index vm_name on vm (account_id, project_id, name_key) where not unlisted;
create index vm_listed on vm (account_id, created_at, id);
create index vm_project on vm (project_id);
create index vm_changed on vm (region_id, change);
create index vm_unnumbered on vm (region_id) where change is null and admitted;

-- Its id is the port's at networking.
create table vm_interface (
  id uuid primary key,
  account_id uuid not null,
  vm_id uuid not null references vm (id) on delete cascade,
  position integer not null,
  -- What the order named; null: the default VPC of the region.
  wanted_vpc_id uuid,
  vpc_id uuid,
  mac text,
  address text,
  unique (vm_id, position)
);

-- Renewals; the id is the reservation's. One per machine and period is open or done: after a death in the middle that one is
-- charged. What was dropped before it was charged stays until the machine is gone: should it be charged late, it is paid back.
create table vm_renewal (
  id uuid primary key,
  account_id uuid not null,
  vm_id uuid not null references vm (id) on delete cascade,
  -- The end of the period that it follows, and its own.
  after timestamptz not null,
  until timestamptz not null,
  state text not null default 'open'
);
create unique index vm_renewal_one on vm_renewal (vm_id, after) where state <> 'dropped';

do $$
declare name text;
begin
  foreach name in array array['ssh_key', 'vm', 'vm_interface', 'vm_renewal'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- The highest epoch that an agent of a region has shown; older agents are refused.
create table region_agent (
  region_id uuid primary key,
  epoch bigint not null,
  seen_at timestamptz not null default now()
);

-- A change feed per region, `wanted:<region>`. A cursor is <nonce>.<number>; another nonce (restored database) or a number
-- below `pruned` asks for everything.
create table feed (
  name text primary key,
  nonce text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
  top bigint not null default 0,
  pruned bigint not null default 0
);

-- Numbers of changes are given when a feed is READ, under the feed's row lock, to rows whose transaction has committed: a
-- number given at write time becomes visible out of order, and a reader that has seen 8 would never see a late 7.
create sequence change_number;
select setval('change_number', 1);

create function number_wanted(region uuid) returns feed language plpgsql as $$
declare found feed;
begin
  insert into feed (name) values ('wanted:' || region) on conflict do nothing;
  select * into found from feed where name = 'wanted:' || region for update;
  -- A row that is locked now is being changed again: its commit notifies, and the next reader numbers it.
  update vm set change = nextval('change_number'), handed = true
    where id in (select id from vm where region_id = region and change is null and admitted for update skip locked);
  update feed set top = (select last_value from change_number) where name = found.name returning * into found;
  return found;
end $$;

create function changed(topic text) returns void language sql as $$
  select pg_notify(current_schema || '_changed', topic)
$$;

create function vm_wanted() returns trigger language plpgsql as $$
begin
  if new.admitted and (new.generation <> old.generation or not old.admitted) then
    new.change := null;
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;
create trigger vm_wanted before update on vm for each row execute function vm_wanted();

-- Those who wait for a state hear of what may change it, and of the end.
create function vm_changed() returns trigger language plpgsql as $$
begin
  if tg_op <> 'UPDATE' then
    perform changed('vm:' || old.id);
  elsif (new.phase, new.power, new.boot, new.generation, new.deleted_at, new.observed_generation, new.observed_state, new.reason)
      is distinct from
      (old.phase, old.power, old.boot, old.generation, old.deleted_at, old.observed_generation, old.observed_state, old.reason) then
    perform changed('vm:' || new.id);
  end if;
  return null;
end $$;
create trigger vm_changed after update or delete on vm for each row execute function vm_changed();

-- Owners, for the gateway's check before every operation (it serves all accounts).
create function vm_owner(wanted uuid) returns table (account_id uuid, project_id uuid) language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return query select v.account_id, v.project_id from vm v where v.id = wanted and not v.unlisted;
end $$;

create function ssh_key_owner(wanted uuid) returns table (account_id uuid) language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return query select k.account_id from ssh_key k where k.id = wanted;
end $$;
