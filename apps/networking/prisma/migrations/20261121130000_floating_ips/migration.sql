-- Public addresses that an account holds, where they come from, and what they cost.

-- The addresses of a region; one that nobody holds longest is given first. Not tenant data.
create table pool_address (
  region_id uuid not null,
  address inet not null,
  -- The floating IP that holds it.
  held_by uuid unique,
  freed_at timestamptz,
  primary key (region_id, address)
);
create index pool_free on pool_address (region_id, freed_at nulls first, address) where held_by is null;

create table floating_ip (
  id uuid primary key,
  account_id uuid not null,
  region_id uuid not null,
  address inet not null,
  name text,
  -- Price of the moment of the order, 10⁻⁹ rubles a month.
  amount_per_month numeric not null,
  created_at timestamptz not null default now(),
  unique (region_id, address)
);
create index floating_ip_listed on floating_ip (account_id, created_at, id);

-- What lasts is paid by time spans at identity-billing; one row from the order to the release, kept until billing has both.
create table span (
  id uuid primary key,
  account_id uuid not null,
  fip_id uuid not null,
  address inet not null,
  -- The reservation that proved a month's price to be there; given back when the span is open.
  reservation_id uuid not null,
  amount_per_month numeric not null,
  price_version integer not null,
  started_at timestamptz not null default now(),
  ended_at timestamptz
);
create unique index span_of on span (fip_id);

do $$
declare name text;
begin
  foreach name in array array['floating_ip', 'span'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- Owner of a floating IP, for the gateway's check before every operation (it serves all accounts).
create function floating_ip_owner(wanted uuid) returns uuid language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return (select account_id from floating_ip where id = wanted);
end $$;
