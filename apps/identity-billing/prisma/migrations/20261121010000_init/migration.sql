-- Who there is: accounts, members, projects, keys, the audit log. Row-level security is forced on every tenant table: a
-- statement sees the rows of the account in `app.account`, all rows when that is 'system', none when it is not set.

create table account (
  id uuid primary key,
  name text not null,
  state text not null default 'active' check (state in ('active', 'closed')),
  tariff_plan text not null,
  created_at timestamptz not null default clock_timestamp()
);
alter table account enable row level security;
alter table account force row level security;
create policy tenant on account
  using (nullif(current_setting('app.account', true), '') in (id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (id::text, 'system'));

create table member (
  id uuid primary key,
  account_id uuid not null references account (id),
  name text not null,
  role text not null check (role in ('owner', 'admin', 'developer', 'billing', 'reader')),
  created_at timestamptz not null default clock_timestamp(),
  unique (account_id, id)
);
alter table member enable row level security;
alter table member force row level security;
create policy tenant on member
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

create table project (
  id uuid primary key,
  account_id uuid not null references account (id),
  name text not null,
  -- The name in lower case (Unicode), so that uniqueness does not depend on the database's locale.
  name_key text not null,
  description text,
  emoji text,
  created_at timestamptz not null default clock_timestamp(),
  unique (account_id, name_key)
);
create index project_order on project (account_id, created_at, id);
alter table project enable row level security;
alter table project force row level security;
create policy tenant on project
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- Control keys and inference keys. What the database holds of a key is its keyed hash.
create table api_key (
  id uuid primary key,
  account_id uuid not null references account (id),
  kind text not null check (kind in ('control', 'inference')),
  name text not null default '',
  hash bytea not null unique,
  -- For people: the beginning and the end of the key.
  prefix text not null,
  last_four text not null,
  issuer_id uuid not null,
  -- Control keys: statements, and the projects they are limited to (null: no limit).
  policy jsonb,
  project_ids jsonb,
  -- Inference keys: models they may use (null: all), and 10⁻⁹ rubles per calendar month in UTC (null: no limit).
  models jsonb,
  monthly_limit bigint check (monthly_limit >= 0),
  state text not null default 'active' check (state in ('active', 'disabled', 'revoked')),
  -- Rises with every change.
  version integer not null default 1,
  created_at timestamptz not null default clock_timestamp(),
  revoked_at timestamptz,
  unique (account_id, id),
  foreign key (account_id, issuer_id) references member (account_id, id),
  check ((kind = 'control') = (policy is not null))
);
create index api_key_order on api_key (account_id, created_at, id);
alter table api_key enable row level security;
alter table api_key force row level security;
create policy tenant on api_key
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));

-- Written in the transaction of what it tells; never changed.
create table audit_entry (
  id uuid primary key,
  seq bigint generated always as identity,
  -- Null: about the whole installation (prices).
  account_id uuid,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  action text not null,
  resource text,
  details jsonb
);
create index audit_entry_order on audit_entry (account_id, seq desc);
alter table audit_entry enable row level security;
alter table audit_entry force row level security;
create policy tenant on audit_entry
  using (nullif(current_setting('app.account', true), '') = 'system'
    or nullif(current_setting('app.account', true), '') = account_id::text)
  with check (nullif(current_setting('app.account', true), '') = 'system'
    or nullif(current_setting('app.account', true), '') = account_id::text);

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'NB500';
end $$;
create trigger append_only before update or delete on audit_entry for each row execute function refuse_change();
create trigger append_only_truncate before truncate on audit_entry for each statement execute function refuse_change();

-- The hot read of every request that the gateway has not in memory: one round trip, past the tenants (a key says whose it is).
create function key_resolve(p_hash bytea)
returns table (
  id uuid, account_id uuid, kind text, policy jsonb, project_ids jsonb, models jsonb, monthly_limit bigint, version integer, role text)
language plpgsql stable as $$
begin
  perform set_config('app.account', 'system', true);
  return query
    select k.id, k.account_id, k.kind, k.policy, k.project_ids, k.models, k.monthly_limit, k.version, m.role
    from api_key k
    join account a on a.id = k.account_id
    join member m on m.account_id = k.account_id and m.id = k.issuer_id
    where k.hash = p_hash and k.state = 'active' and a.state = 'active';
end $$;
