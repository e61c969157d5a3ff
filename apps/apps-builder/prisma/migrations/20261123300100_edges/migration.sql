-- The edges that serve visitors, by the names that they keep: a deploy is live when every one of them has its routes.
-- Not tenant data.
create table edge (
  id text primary key,
  seen_at timestamptz not null default clock_timestamp(),
  -- It is there and yet did not take routes in all the time it was given: nobody waits for it until it confirms again.
  overdue_at timestamptz
);

-- The newest change of a route that an edge has said to serve. No reference to `route`: its check would lock the row, and
-- who numbers changes passes over locked rows.
create table edge_route (
  edge_id text not null references edge (id) on delete cascade,
  host text not null,
  confirmed bigint not null,
  primary key (edge_id, host)
);
create index edge_route_host on edge_route (host);
