create table region (
  id uuid primary key,
  name text not null unique,
  is_default boolean not null default false,
  token_hash bytea unique,
  epoch integer not null default 0,
  agent_at timestamptz,
  created_at timestamptz not null default now()
);
create unique index region_one_default on region (is_default) where is_default;
