-- Custom domains: claims, who has shown that a name is theirs, and certificates.

alter table app_domain drop constraint app_domain_host_key;
alter table app_domain
  -- Since when the name leads here: its owner has shown that it is theirs. Only then there are routes.
  add column verified_at timestamptz,
  -- How that was shown: platform (a default name), zone, txt or address.
  add column proof text,
  -- When the proof was last seen.
  add column proven_at timestamptz,
  -- Its address record may replace the account's own records.
  add column override_dns boolean not null default false,
  add column skip_certificate boolean not null default false,
  -- Checks without a result in a row; the pause between them grows with it.
  add column checks integer not null default 0,
  -- Unlisted; what it had in DNS is being taken away.
  add column deleted_at timestamptz;
update app_domain set verified_at = created_at, proof = 'platform' where is_default;
-- A name has one owner, and any number of claims that nothing has been shown for.
create unique index app_domain_owner on app_domain (host) where verified_at is not null;
create unique index app_domain_claim on app_domain (account_id, host) where deleted_at is null;
create index app_domain_host on app_domain (host);

create table certificate (
  id uuid primary key,
  account_id uuid not null,
  domain_id uuid not null unique references app_domain (id) on delete cascade,
  primary_domain text not null,
  domains text[] not null,
  -- pending, issued or error.
  status text not null default 'pending',
  error text,
  challenge_type text,
  not_before timestamptz,
  not_after timestamptz,
  -- PEM, leaf first; null: none yet, or made by the edge's own CA.
  chain text,
  -- PKCS #8 PEM, sealed for account and id.
  sealed_key bytea,
  -- SHA-256 of the leaf, hex: the edge knows by it that there is another one.
  fingerprint text,
  -- The order under way: its addresses, what is to be proven, and the sealed key of the certificate to come.
  acme_order jsonb,
  -- In a row; the pause between attempts grows with it.
  failures integer not null default 0,
  -- Before that nothing is tried again.
  retry_at timestamptz,
  created_at timestamptz not null default now()
);
create index certificate_account on certificate (account_id, created_at, id);

-- What the edge answers to a certificate authority while an order is under way.
create table acme_challenge (
  token text primary key,
  account_id uuid not null,
  certificate_id uuid not null references certificate (id) on delete cascade,
  host text not null,
  answer text not null,
  created_at timestamptz not null default now()
);
create index acme_challenge_certificate on acme_challenge (certificate_id);

do $$
declare name text;
begin
  foreach name in array array['certificate', 'acme_challenge'] loop
    execute format('alter table %I enable row level security', name);
    execute format('alter table %I force row level security', name);
    execute format(
      'create policy tenant on %I using (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))
       with check (nullif(current_setting(''app.account'', true), '''') in (account_id::text, ''system''))', name);
  end loop;
end $$;

-- Not tenant data: this installation's account at a certificate authority.
create table acme_account (
  directory text primary key,
  -- PKCS #8 PEM, sealed for the directory.
  sealed_key bytea not null,
  -- Null: not registered, or forgotten there.
  url text,
  -- The authority asked to come later: no order begins before.
  paused_until timestamptz
);

-- A new certificate is a change of the routes that it is for.
alter table route add column certificate_fingerprint text;
create or replace function route_changed() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' or (new.target, new.build_id, new.app_id, new.removed_at, new.certificate_fingerprint)
      is distinct from (old.target, old.build_id, old.app_id, old.removed_at, old.certificate_fingerprint) then
    new.change := null;
    perform changed('routes');
  end if;
  return new;
end $$;
