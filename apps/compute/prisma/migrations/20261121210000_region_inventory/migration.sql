-- What a region's host has, when an audit asks its agent. Only the newest answer is kept.
create table region_inventory (
  region_id uuid primary key references region (id) on delete cascade,
  asked integer not null,
  -- The newest number whose last part has come.
  answered integer not null default 0
);

create table region_thing (
  region_id uuid not null references region (id) on delete cascade,
  number integer not null,
  kind text not null,
  id text not null,
  owner text,
  state text,
  primary key (region_id, number, kind, id)
);
