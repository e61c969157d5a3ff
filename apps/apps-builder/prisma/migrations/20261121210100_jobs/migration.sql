-- Jobs: commands in an app's current version, by a schedule or by hand, and their runs.

create table job (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  name text not null,
  command text not null,
  -- Five fields in UTC; null: by hand only.
  schedule text,
  timeout_seconds integer not null,
  enabled boolean not null,
  -- The next tick that is neither run nor written down as missed; null: none is due ever. It only moves forward, in the
  -- transaction that writes the runs of the ticks before it.
  next_tick timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (app_id, name)
);
create index job_listed on job (app_id, created_at, id);

create table job_run (
  id uuid primary key,
  seq bigint generated always as identity,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  -- A run outlives its job.
  job_id uuid references job (id) on delete set null,
  revision_id uuid references revision (id) on delete set null,
  build_id uuid,
  region_id uuid not null,
  kind text not null,
  command text not null,
  timeout_ms integer not null,
  status text not null default 'queued',
  exit_code integer,
  error text,
  triggered_by text not null,
  -- The tick; of several missed ones in one row, the first.
  scheduled_for timestamptz,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  finished_at timestamptz,
  duration_ms integer,
  -- First and last lines, how many came, and the number that the next one must have at least.
  log_head jsonb not null default '[]',
  log_tail jsonb not null default '[]',
  log_lines bigint not null default 0,
  log_next bigint not null default 0,
  log_done boolean not null default false,
  -- Wanted of the region.
  generation integer not null default 1,
  gone boolean not null default false,
  change bigint,
  -- Observed by the region.
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_facts jsonb,
  observed_at timestamptz,
  -- No tick is run twice, whoever computes it.
  unique (job_id, scheduled_for)
);
-- One run of a job at a time.
create unique index job_run_alone on job_run (job_id) where status in ('queued', 'running');
create index job_run_listed on job_run (app_id, seq desc);
create index job_run_of_job on job_run (job_id, seq desc) where job_id is not null;
create index job_run_revision on job_run (revision_id) where revision_id is not null;
create index job_run_changed on job_run (region_id, change);
create index job_run_unnumbered on job_run (region_id) where change is null;
create index job_run_old on job_run (created_at);

do $$
declare name text;
begin
  foreach name in array array['job', 'job_run'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

create trigger wanted_changed before insert or update on job_run for each row execute function wanted_changed();

-- Runs are numbered with builds and replicas: one feed a region.
create or replace function number_wanted(region uuid) returns feed language plpgsql as $$
declare found feed;
begin
  insert into feed (name) values ('wanted:' || region) on conflict do nothing;
  select * into found from feed where name = 'wanted:' || region for update;
  -- A row that is locked now is being changed again: its commit notifies, and the next reader numbers it.
  update build set change = nextval('change_number')
    where id in (select id from build where region_id = region and change is null for update skip locked);
  update replica set change = nextval('change_number')
    where id in (select id from replica where region_id = region and change is null for update skip locked);
  update job_run set change = nextval('change_number')
    where id in (select id from job_run where region_id = region and change is null for update skip locked);
  update feed set top = (select last_value from change_number) where name = found.name returning * into found;
  return found;
end $$;

-- Those who wait for a state hear of every change of a run.
create function job_run_changed() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or new.status <> old.status then
    perform changed('app:' || new.app_id);
  end if;
  return null;
end $$;
create trigger job_run_changed after insert or update on job_run for each row execute function job_run_changed();

-- Jobs and runs of an app that is deleted or suspended look at once what that means for them.
create function app_jobs_due() returns trigger language plpgsql as $$
begin
  if new.deleted_at is distinct from old.deleted_at or new.suspended <> old.suspended then
    update lifecycle set wakes = wakes + 1, run_at = now()
      where kind = 'job_run' and id in (select id from job_run where app_id = new.id and status in ('queued', 'running'))
        and ended_at is null;
    update lifecycle set wakes = wakes + 1, run_at = now()
      where kind = 'job' and id in (select id from job where app_id = new.id) and ended_at is null;
  end if;
  return null;
end $$;
create trigger app_jobs_due after update on app for each row execute function app_jobs_due();
