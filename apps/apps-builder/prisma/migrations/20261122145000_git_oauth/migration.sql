-- Git hosts connected by an OAuth app: grants that run out are renewed, and a person's way through the host and back.

alter table git_connection
  -- What opens it: a token that somebody made, the grant of an OAuth app, or an installation of the host's app.
  add column auth text not null default 'token',
  -- What a grant is renewed by; sealed as the token is. Null: nothing, or an installation.
  add column refresh_sealed bytea,
  -- Null: it does not run out by itself.
  add column token_expires_at timestamptz,
  -- From then on it is renewed before it is used.
  add column token_renew_at timestamptz,
  -- Who renews it now, and since when: one at a time, whatever process.
  add column renewing uuid,
  add column renewing_since timestamptz,
  -- Id of the installation at the git host.
  add column installation_id text;
create index build_connection on build (git_connection_id) where git_connection_id is not null and status = 'queued';

-- A person on the way to a git host and back. The secret of the address is kept as a hash.
create table git_authorization (
  id uuid primary key,
  account_id uuid not null,
  -- The key that asked; another one, or a changed one, ends it.
  key_id text not null,
  provider text not null,
  base_url text not null default '',
  name text,
  -- By an installation of the host's app instead of a person's grant.
  is_installation boolean not null default false,
  -- The connection that shall be renewed; null: whichever the person's account at the host has, or a new one.
  wanted_connection_id uuid,
  state_hash bytea not null,
  verifier_sealed bytea not null,
  -- pending, trading (the code is being given for a token), connected, failed.
  status text not null default 'pending',
  status_reason text,
  connection_id uuid references git_connection (id) on delete set null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null default now() + interval '10 minutes',
  used_at timestamptz
);
create index git_authorization_account on git_authorization (account_id, created_at desc);
create index git_authorization_key on git_authorization (key_id) where status in ('pending', 'trading');
create index git_authorization_old on git_authorization (created_at);
alter table git_authorization enable row level security;
alter table git_authorization force row level security;
create policy tenant on git_authorization
  using (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'))
  with check (nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
