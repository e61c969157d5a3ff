-- Prices in versions: a charge names the version it was made at, so an old one stays explainable.
create table price (
  id text not null,
  version integer not null,
  -- 10⁻⁹ rubles per unit.
  amount bigint not null check (amount >= 0),
  unit text not null,
  -- 'file': from prices.yaml; 'set': by the operator or by another service's own file.
  origin text not null check (origin in ('file', 'set')),
  created_at timestamptz not null default clock_timestamp(),
  primary key (id, version)
);

-- What a tariff plan of accounts includes each month; its price is `tariff.<id>.month`.
create table tariff_plan (
  id text primary key,
  name text not null,
  active_cpu_hours integer not null check (active_cpu_hours >= 0),
  memory_gb_hours integer not null check (memory_gb_hours >= 0),
  is_default boolean not null
);
create unique index tariff_plan_one_default on tariff_plan (is_default) where is_default;

-- Requests granted to gateways per key and window (fixed window, one counter for all replicas).
create table rate_window (
  key_id text not null,
  window_start bigint not null,
  granted bigint not null,
  expires_at timestamptz not null,
  primary key (key_id, window_start)
);
create index rate_window_expires on rate_window (expires_at);
