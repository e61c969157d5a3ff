-- What an account owns. Intent (what the API wrote) and observation (what region and edge reported) are separate columns.

create table app (
  id uuid primary key,
  account_id uuid not null,
  project_id uuid not null,
  region_id uuid not null,
  name text not null,
  -- The name as it is compared: case and Unicode form folded by the service, since lower() depends on the locale.
  name_key text not null,
  app_type text not null,
  runtime_type text not null,
  source_type text not null,
  source_error text,
  git_provider text not null,
  git_connection_id text,
  repo_full_name text not null,
  repo_id bigint not null default 0,
  branch text not null,
  auto_deploy boolean not null default true,
  docker_image text,
  running_docker_image text,
  running_docker_image_digest text,
  framework text,
  nodejs_version text,
  root_directory text,
  install_command text,
  build_command text,
  start_command text,
  output_directory text,
  predeploy_command text,
  readiness_path text,
  vpc_id uuid,
  replica_count integer not null,
  replica_vcpu integer not null,
  replica_memory_mb integer not null,
  deploy_strategy text not null,
  -- Intent: the revision that shall serve, and a restart that is due (several changes within its delay make one).
  target_revision_id uuid,
  restart_at timestamptz,
  deleted_at timestamptz,
  -- Written by the rollout lifecycle only: the revision under way, and the one that serves.
  rolling_revision_id uuid,
  current_revision_id uuid,
  current_build_id uuid,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create unique index app_name on app (account_id, project_id, name_key) where deleted_at is null;
create index app_listed on app (account_id, created_at, id) where deleted_at is null;
create index app_deleted on app (deleted_at) where deleted_at is not null;

create table build (
  id uuid primary key,
  seq bigint generated always as identity,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  region_id uuid not null,
  cause text not null,
  status text not null default 'queued',
  deploy_state text,
  error text,
  boot_error text,
  commit_sha text,
  commit_message text,
  docker_image text,
  docker_image_digest text,
  source_sha256 text,
  source_bytes bigint,
  -- Sealed variables as they were when the build was ordered: [{name, sealed, secret}].
  env jsonb not null default '[]',
  artifact_sha256 text,
  artifact_bytes bigint,
  artifact_kind text,
  start_command text,
  stack text,
  duration_ms integer,
  log_done boolean not null default false,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  finished_at timestamptz,
  -- Wanted of the region.
  generation integer not null default 1,
  gone boolean not null default false,
  change bigint,
  -- Observed by the region.
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_facts jsonb,
  observed_at timestamptz
);
create index build_newest on build (app_id, seq desc);
create index build_changed on build (region_id, change);
create index build_unnumbered on build (region_id) where change is null;
create index build_source on build (source_sha256) where source_sha256 is not null;
create index build_artifact on build (artifact_sha256) where artifact_sha256 is not null;

create table revision (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  build_id uuid not null references build (id) on delete cascade,
  cause text not null,
  vcpu integer not null,
  memory_mb integer not null,
  env jsonb not null default '[]',
  created_at timestamptz not null default now()
);
create index revision_app on revision (app_id);
create index revision_build on revision (build_id);

create table replica (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  revision_id uuid not null references revision (id) on delete cascade,
  region_id uuid not null,
  readiness_path text not null default '',
  ready_timeout_ms integer not null,
  created_at timestamptz not null default now(),
  -- Serves until then, for requests that still run: out of the routes already.
  retire_at timestamptz,
  generation integer not null default 1,
  gone boolean not null default false,
  change bigint,
  observed_generation integer,
  observed_state text,
  observed_reason text,
  observed_at timestamptz,
  received_at timestamptz,
  host text,
  port integer,
  isolated boolean,
  started_at timestamptz,
  ready_at timestamptz,
  -- Gone in the region too.
  ended_at timestamptz
);
create index replica_app on replica (app_id) where ended_at is null;
create index replica_revision on replica (revision_id);
create index replica_changed on replica (region_id, change);
create index replica_unnumbered on replica (region_id) where change is null;
create index replica_ended on replica (ended_at) where ended_at is not null;

create table env_var (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  name text not null,
  -- Sealed whether secret or not; bound to account, app and name.
  sealed bytea not null,
  is_secret boolean not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (app_id, name)
);

create table app_domain (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  host text not null unique,
  status text not null,
  type text not null default 'current',
  is_default boolean not null default false,
  build_id uuid,
  dns_configured boolean not null default false,
  target_ip text,
  certificate_id uuid,
  error text,
  created_at timestamptz not null default now()
);
create index app_domain_app on app_domain (app_id);

create table build_log_line (
  build_id uuid not null references build (id) on delete cascade,
  seq bigint not null,
  account_id uuid not null,
  at timestamptz not null,
  line text not null,
  primary key (build_id, seq)
);

create table runtime_log_line (
  pos bigint generated always as identity primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  replica_id uuid not null,
  seq bigint not null,
  at timestamptz not null,
  line text not null,
  stored_at timestamptz not null default now(),
  unique (replica_id, seq)
);
create index runtime_log_app on runtime_log_line (app_id, pos);
create index runtime_log_stored on runtime_log_line (stored_at);

-- What the edge serves, one row a host; removed rows stay for a day, so that a delta can name them.
create table route (
  host text primary key,
  account_id uuid not null,
  app_id uuid not null,
  build_id uuid,
  target jsonb not null,
  removed_at timestamptz,
  change bigint,
  -- The newest change that an edge has said to serve.
  confirmed bigint not null default 0
);
create index route_app on route (app_id);
create index route_changed on route (change);
create index route_unnumbered on route (host) where change is null;

-- Permanent replicas are paid by time spans at identity-billing; one row a span.
create table span (
  id uuid primary key,
  account_id uuid not null,
  app_id uuid not null references app (id) on delete cascade,
  replica_count integer not null,
  vcpu integer not null,
  memory_mb integer not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  -- Price of the moment, 10⁻⁹ rubles a month; kept so that a repeated call says the same.
  amount_per_month numeric
);
create unique index span_open on span (app_id) where ended_at is null;

-- Row-level security: the second belt. The service's role owns nothing, so FORCE binds everyone but a superuser.
do $$
declare name text;
begin
  foreach name in array array['app', 'build', 'revision', 'replica', 'env_var', 'app_domain', 'build_log_line', 'runtime_log_line', 'route', 'span'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- Not tenant data.

-- Blobs that came through this service; a row of build owns them, what none owns is collected after a day.
create table blob (
  sha256 text primary key,
  bytes bigint not null,
  stored_at timestamptz not null default now()
);
create index blob_stored on blob (stored_at);

-- The highest epoch that an agent of a region has shown; older agents are refused.
create table region_agent (
  region_id uuid primary key,
  epoch bigint not null,
  seen_at timestamptz not null default now()
);

-- Change feeds: `routes`, and `wanted:<region>`. A cursor is <nonce>.<number>; another nonce (restored database) or a
-- number below `pruned` asks for everything.
create table feed (
  name text primary key,
  nonce text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 8),
  top bigint not null default 0,
  pruned bigint not null default 0
);
insert into feed (name) values ('routes');

-- Numbers of changes are given when a feed is READ, under the feed's row lock, to rows whose transaction has committed.
-- A number given at write time (bigserial) becomes visible out of order, and a reader that has seen 8 would never see a 7
-- that commits later.
create sequence change_number;
-- The first number given is 2: an unused sequence says last_value 1, which is then the `top` of a feed with nothing in it.
select setval('change_number', 1);

create function number_wanted(region uuid) returns feed language plpgsql as $$
declare found feed;
begin
  insert into feed (name) values ('wanted:' || region) on conflict do nothing;
  select * into found from feed where name = 'wanted:' || region for update;
  -- A row that is locked now is being changed again: its commit notifies, and the next reader numbers it.
  update build set change = nextval('change_number')
    where id in (select id from build where region_id = region and change is null for update skip locked);
  update replica set change = nextval('change_number')
    where id in (select id from replica where region_id = region and change is null for update skip locked);
  update feed set top = (select last_value from change_number) where name = found.name returning * into found;
  return found;
end $$;

create function number_routes() returns feed language plpgsql as $$
declare found feed;
begin
  select * into found from feed where name = 'routes' for update;
  update route set change = nextval('change_number')
    where host in (select host from route where change is null for update skip locked);
  update feed set top = (select last_value from change_number) where name = found.name returning * into found;
  return found;
end $$;

create function changed(topic text) returns void language sql as $$
  select pg_notify(current_schema || '_changed', topic)
$$;

create function wanted_changed() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or new.generation <> old.generation then
    new.change := null;
    perform changed('wanted:' || new.region_id);
  end if;
  return new;
end $$;
create trigger wanted_changed before insert or update on build for each row execute function wanted_changed();
create trigger wanted_changed before insert or update on replica for each row execute function wanted_changed();

create function route_changed() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or (new.target, new.build_id, new.app_id, new.removed_at) is distinct from (old.target, old.build_id, old.app_id, old.removed_at) then
    new.change := null;
    perform changed('routes');
  end if;
  return new;
end $$;
create trigger route_changed before insert or update on route for each row execute function route_changed();

-- Those who wait for a state hear of every change of an app or build.
create function app_changed() returns trigger language plpgsql as $$
begin
  perform changed('app:' || new.id);
  return null;
end $$;
create trigger app_changed after insert or update on app for each row execute function app_changed();

create function build_changed() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or (new.status, new.deploy_state, new.error, new.boot_error, new.log_done)
      is distinct from (old.status, old.deploy_state, old.error, old.boot_error, old.log_done) then
    perform changed('app:' || new.app_id);
  end if;
  return null;
end $$;
create trigger build_changed after insert or update on build for each row execute function build_changed();

-- GET of one app is the hottest read: one prepared statement that sets the account for row-level security and reads.
create function app_get(account text, wanted uuid) returns table (
  id uuid, project_id uuid, region_id uuid, name text, app_type text, runtime_type text, source_type text, source_error text,
  git_provider text, repo_full_name text, branch text, auto_deploy boolean, docker_image text, running_docker_image text,
  running_docker_image_digest text, predeploy_command text, readiness_path text, vpc_id uuid, replica_count integer,
  replica_vcpu integer, replica_memory_mb integer, deploy_strategy text, current_build_id uuid, created_at timestamptz,
  updated_at timestamptz, newest_status text, newest_deploy_state text
) language plpgsql as $$
begin
  perform set_config('app.account', account, true);
  return query
    select a.id, a.project_id, a.region_id, a.name, a.app_type, a.runtime_type, a.source_type, a.source_error, a.git_provider,
      a.repo_full_name, a.branch, a.auto_deploy, a.docker_image, a.running_docker_image, a.running_docker_image_digest,
      a.predeploy_command, a.readiness_path, a.vpc_id, a.replica_count, a.replica_vcpu, a.replica_memory_mb, a.deploy_strategy,
      a.current_build_id, a.created_at, a.updated_at, b.status, b.deploy_state
    from app a
    left join lateral (select n.status, n.deploy_state from build n where n.app_id = a.id order by n.seq desc limit 1) b on true
    where a.id = wanted and a.account_id = account::uuid and a.deleted_at is null;
end $$;

-- Owner of an app, for the gateway's check before every operation (it serves all accounts).
create function app_owner(wanted uuid) returns table (account_id uuid, project_id uuid) language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  return query select a.account_id, a.project_id from app a where a.id = wanted and a.deleted_at is null;
end $$;
