-- Zones, their sets of records, and what the name servers have to read again.

create table zone (
  id uuid primary key,
  account_id uuid not null,
  -- Absolute, lower case, with the trailing dot.
  name text collate "C" not null,
  default_ttl integer,
  status text not null default 'pending' check (status in ('pending', 'active')),
  status_reason text,
  -- Of the SOA: rises by one with every change of the data, which the row's lock puts into one order.
  serial bigint not null,
  record_count integer not null default 0 check (record_count >= 0),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  constraint zone_name unique (account_id, name)
);
-- The same name may be claimed by several accounts; it is delegated to us for one of them.
create unique index zone_active on zone (name) where status = 'active';
create index zone_listed on zone (account_id, created_at, id);

-- All values of a name and type; there is none without a value.
create table rrset (
  id uuid primary key,
  account_id uuid not null,
  zone_id uuid not null references zone (id) on delete cascade,
  name text collate "C" not null,
  type text collate "C" not null,
  ttl integer,
  -- SHA-256 of id, TTL and values, hex.
  revision text not null,
  seq bigint generated always as identity,
  constraint rrset_name unique (zone_id, name, type)
);
create index rrset_listed on rrset (zone_id, seq);

create table record (
  id uuid primary key,
  account_id uuid not null,
  zone_id uuid not null references zone (id) on delete cascade,
  rrset_id uuid not null references rrset (id) on delete cascade,
  -- As it was sent.
  content text not null,
  -- The same in wire form, and the hash of its canonical form: one value has several spellings.
  rdata bytea not null,
  digest bytea not null,
  -- `kind:id` of what the platform keeps it for; null: the account's own.
  owner text,
  position integer not null,
  seq bigint generated always as identity,
  constraint record_value unique (rrset_id, digest)
);
create index record_listed on record (zone_id, seq);
create index record_owner on record (account_id, owner) where owner is not null;

-- Which names each serial has touched, so that the name servers read these and not the whole zone. Null: the zone's head.
create table zone_change (
  account_id uuid not null,
  zone_id uuid not null references zone (id) on delete cascade,
  serial bigint not null,
  name text collate "C",
  at timestamptz not null default now()
);
create index zone_change_serial on zone_change (zone_id, serial);
create index zone_change_at on zone_change (at);

-- Owners whose records were taken away for good: a late request to put one must make nothing. Forgotten after a week.
create table released_owner (
  account_id uuid not null,
  owner text not null,
  at timestamptz not null default now(),
  primary key (account_id, owner)
);

-- Row-level security: the second belt. The service's role owns nothing, so FORCE binds everyone but a superuser.
do $$
declare name text;
begin
  foreach name in array array['zone', 'rrset', 'record', 'zone_change', 'released_owner'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- The name servers hear of every change when it commits.
create function zone_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify(current_schema || '_changed', 'zone:' || coalesce(new.id, old.id));
  return null;
end $$;
create trigger zone_changed after insert or update or delete on zone for each row execute function zone_changed();

-- Owner of a zone, for the gateway's check before every operation (it serves all accounts).
create function dns_zone_owner(wanted uuid) returns uuid language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return (select account_id from zone where id = wanted);
end $$;
