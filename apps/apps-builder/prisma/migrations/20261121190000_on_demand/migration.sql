-- Replicas that may sleep. Those that are there run always: the rollout puts others in their place where an app is on demand.

-- Milliseconds without use after which it sleeps; null: it runs always.
alter table replica add column idle_ms integer;
-- As reported: an edge can have it woken. Only then may a route rely on that.
alter table replica add column wakeable boolean not null default false;
-- As reported: crashes in a row.
alter table replica add column crashes integer not null default 0;
