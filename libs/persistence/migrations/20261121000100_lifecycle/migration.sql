-- One row per thing that lives through states; whoever holds the lease takes the next step (libs/lifecycle).
create table lifecycle (
  kind text not null,
  id uuid not null,
  state text not null,
  entered_at timestamptz not null default now(),
  -- 'infinity' while it rests until somebody wakes it.
  run_at timestamptz not null default now(),
  deadline_at timestamptz,
  -- Tries of this state since it was entered or last chose to wait.
  attempt integer not null default 0,
  -- Rises with each claim; a write that names an older one is refused.
  fence bigint not null default 0,
  lease_owner text,
  lease_until timestamptz,
  -- Counts wakes: a step that ends compares it, so that a wake in its middle is not lost.
  wakes bigint not null default 0,
  reason text,
  ended_at timestamptz,
  primary key (kind, id)
);
create index lifecycle_due on lifecycle (run_at) where ended_at is null;
create index lifecycle_ended on lifecycle (ended_at) where ended_at is not null;

create function lifecycle_notify() returns trigger language plpgsql as $$
begin
  perform pg_notify(tg_table_schema || '_lifecycle', '');
  return null;
end $$;
create trigger lifecycle_notify after insert or update of wakes on lifecycle for each statement execute function lifecycle_notify();
