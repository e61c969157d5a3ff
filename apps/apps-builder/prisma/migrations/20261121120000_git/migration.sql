-- Git hosts: connections, webhooks, deliveries, and what a build has of a commit.

create table git_connection (
  id uuid primary key,
  account_id uuid not null,
  provider text not null,
  -- Address of a self-hosted host without a slash at its end; empty for the hosted one.
  base_url text not null default '',
  login text not null,
  name text not null,
  -- Token of the git host, and what its webhooks are signed with; sealed, bound to account and connection.
  token_sealed bytea not null,
  hook_secret_sealed bytea not null,
  status text not null default 'active',
  status_reason text,
  created_at timestamptz not null default now(),
  checked_at timestamptz,
  deleted_at timestamptz
);
-- Connecting the same account of a git host again renews its token.
create unique index git_connection_of on git_connection (account_id, provider, base_url, login) where deleted_at is null;

-- A webhook of a repository, shared by all apps that are built from it.
create table git_hook (
  id uuid primary key,
  account_id uuid not null,
  connection_id uuid not null references git_connection (id) on delete cascade,
  -- Name of the repository as the app gave it, and as it is compared.
  repo_full_name text not null,
  repo_key text not null,
  -- Its id at the git host, once it is there.
  external_id text,
  error text,
  unique (connection_id, repo_key)
);

alter table app add column repo_key text generated always as (lower(repo_full_name)) stored;
-- A push that has not led to a build yet: since when, and when the last one came.
alter table app add column push_since timestamptz;
alter table app add column push_at timestamptz;
-- When the last build of a push began.
alter table app add column push_built_at timestamptz;
create index app_git on app (git_connection_id, repo_key) where git_connection_id is not null and deleted_at is null;

alter table build add column commit_author text;
alter table build add column branch text;
alter table build add column clone_url text;
alter table build add column clone_username text;
alter table build add column git_connection_id uuid;
-- What the git host was last told of the build: pending, success or failure.
alter table build add column commit_status text;

create table delivery (
  id uuid primary key,
  seq bigint generated always as identity,
  account_id uuid not null,
  connection_id uuid not null references git_connection (id) on delete cascade,
  -- Null: nothing of it could be believed, or it concerns no app.
  app_id uuid references app (id) on delete cascade,
  -- What makes two messages the same one: the host's id of the delivery, or a hash of the body.
  dedupe text not null,
  event text not null,
  branch text,
  commit_sha text,
  outcome text not null,
  reason text not null,
  build_id uuid references build (id) on delete set null,
  repeats integer not null default 0,
  received_at timestamptz not null default now()
);
create unique index delivery_once on delivery (connection_id, dedupe, app_id) nulls not distinct;
create index delivery_app on delivery (app_id, seq desc);
create index delivery_connection on delivery (connection_id, seq desc) where app_id is null;
create index delivery_old on delivery (received_at);
create index delivery_build on delivery (build_id) where build_id is not null;

do $$
declare name text;
begin
  foreach name in array array['git_connection', 'git_hook', 'delivery'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- The git host hears of every change of a build of its commits.
create function commit_status_due() returns trigger language plpgsql as $$
begin
  if new.git_connection_id is not null and (new.status, new.deploy_state) is distinct from (old.status, old.deploy_state) then
    update lifecycle set wakes = wakes + 1, run_at = now()
      where kind = 'commit_status' and id = new.id and ended_at is null;
  end if;
  return null;
end $$;
create trigger commit_status_due after update on build for each row execute function commit_status_due();
