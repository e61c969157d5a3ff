-- An order is written in one round trip: what was asked of others beforehand is checked here.

-- Projects whose machines were counted by whoever would delete them. An order that asked for its project before must ask again.
create table leaving_project (
  id uuid primary key,
  at timestamptz not null default now()
);

-- Keeps a project from being deleted until the transaction ends: whoever deletes it counts first, and waits here. Fails when
-- it was counted lately.
create function hold_project(p_id uuid) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('project|' || p_id, 0));
  if exists (select 1 from leaving_project l where l.id = p_id) then
    raise exception 'the project may be on its way out' using errcode = 'NBPRJ';
  end if;
end $$;
