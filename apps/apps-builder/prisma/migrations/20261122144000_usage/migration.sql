-- What apps use on demand, as their regions measured it, and what of it has been charged. Nothing here belongs to an app's row:
-- what was used is charged after the app is gone too.

-- One hour of one app and kind: the unit that is charged.
create table usage_hour (
  id uuid primary key default gen_random_uuid(),
  account_id uuid not null,
  app_id uuid not null,
  -- 'replica': replicas on demand; 'run': runs of jobs.
  kind text not null check (kind in ('replica', 'run')),
  starts_at timestamptz not null,
  ends_at timestamptz not null check (ends_at > starts_at),
  -- Something was reported since the last part was made.
  changed boolean not null default true,
  -- Why something of it is free; stays so: 'cpu_unmeasured', 'simulated'.
  free text,
  -- What the parts that were made hold in all.
  parts integer not null default 0,
  charged_cpu_us bigint not null default 0,
  charged_memory numeric not null default 0,
  unique (app_id, kind, starts_at)
);
create index usage_hour_over on usage_hour (ends_at);

-- The totals of one life of a process in that hour. They only rise.
create table usage_life (
  hour_id uuid not null references usage_hour (id) on delete cascade,
  account_id uuid not null,
  region_id uuid not null,
  -- The replica or run.
  owner_id uuid not null,
  life text not null,
  vcpu integer not null,
  memory_mb integer not null,
  seq bigint not null,
  -- Null: it could not be measured.
  cpu_us bigint check (cpu_us >= 0),
  running_ms bigint not null check (running_ms >= 0),
  final boolean not null,
  -- It was not final in time: its processor time is free.
  late boolean not null default false,
  real boolean not null,
  primary key (hour_id, owner_id, life)
);
create index usage_life_owner on usage_life (owner_id, life);

-- What is sent to identity-billing, once and never changed: the difference to the parts before.
create table usage_part (
  hour_id uuid not null references usage_hour (id) on delete cascade,
  account_id uuid not null,
  part integer not null,
  cpu_us bigint not null check (cpu_us >= 0),
  memory_mb_ms numeric not null check (memory_mb_ms >= 0),
  free text,
  description text not null,
  sent_at timestamptz,
  primary key (hour_id, part)
);

do $$
declare name text;
begin
  foreach name in array array['usage_hour', 'usage_life', 'usage_part'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;
