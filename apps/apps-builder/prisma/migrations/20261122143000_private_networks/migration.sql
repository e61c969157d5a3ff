-- Replicas and job runs in a VPC. Each sits on a port of networking, whose id is picked here before it is claimed.

create table app_port (
  -- The port's id at networking, and the operation id of its claim.
  id uuid primary key,
  account_id uuid not null,
  -- Without foreign keys: a port outlives what sat on it until it has been given back.
  app_id uuid not null,
  project_id uuid not null,
  region_id uuid not null,
  vpc_id uuid not null,
  -- One of the two sits on it.
  replica_id uuid,
  run_id uuid,
  created_at timestamptz not null default now(),
  -- As networking answered; null: not claimed yet.
  mac text,
  address text,
  prefix integer,
  gateway text,
  -- Why there is none and will be none.
  refused text,
  -- Why there is none yet.
  trouble text,
  check (num_nonnulls(replica_id, run_id) = 1)
);
create index app_port_app on app_port (app_id);
create index app_port_replica on app_port (replica_id) where replica_id is not null;
create index app_port_run on app_port (run_id) where run_id is not null;
alter table app_port enable row level security;
alter table app_port force row level security;
create policy tenant on app_port using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- The network that it was made for; null: none. The region is told of it once its port is claimed.
alter table replica add column vpc_id uuid;
alter table replica add column port_id uuid;
alter table job_run add column port_id uuid;

-- Why the serving replicas are not all in the network that the app names; null: they are, or are on their way.
alter table app add column network_fault text;

-- Whoever sits on a port leaves it: its life looks at once whether it is to be given back.
create function app_port_due() returns trigger language plpgsql as $$
begin
  update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'app_port' and id = new.port_id and ended_at is null;
  return null;
end $$;
create trigger app_port_due after update on replica for each row
  when (new.port_id is not null and (new.gone, new.ended_at) is distinct from (old.gone, old.ended_at))
  execute function app_port_due();
create trigger app_port_due after update on job_run for each row
  when (new.port_id is not null and (new.gone, new.status, new.observed_state) is distinct from (old.gone, old.status, old.observed_state))
  execute function app_port_due();
