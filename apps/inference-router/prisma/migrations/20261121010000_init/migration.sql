-- One row per request that passed the money check, from before its hold until the ledger has taken its end: what a crash
-- at any point leaves behind is here. Amounts are 10⁻⁹ rubles.
create table settlement (
  operation_id uuid primary key,
  account_id uuid not null,
  -- open: the request runs (or its process died). capture, void: decided, to be delivered. done: delivered.
  -- refused: billing will not take it; for the operator.
  state text not null check (state in ('open', 'capture', 'void', 'done', 'refused')),
  held bigint not null check (held >= 0),
  amount bigint check (amount >= 0 and amount <= held),
  usage jsonb,
  -- The process that runs the request, and until when it need not be thought dead.
  owner uuid not null,
  lease_until timestamptz not null,
  attempts integer not null default 0,
  next_attempt_at timestamptz not null default now(),
  error text,
  created_at timestamptz not null default now(),
  settled_at timestamptz,
  delivered_at timestamptz
);
create index settlement_due on settlement (next_attempt_at) where state in ('capture', 'void');
create index settlement_open on settlement (lease_until) where state = 'open';
create index settlement_done on settlement (delivered_at) where state = 'done';

-- One row per request that passed the money check, without any content.
create table request_log (
  operation_id uuid primary key,
  request_id text not null,
  account_id uuid not null,
  key_id uuid not null,
  format text not null,
  model text not null,
  upstream text,
  streamed boolean not null,
  -- HTTP status that the client saw; 499: it left before.
  status integer not null,
  outcome text not null check (outcome in ('complete', 'uncounted', 'aborted', 'drained', 'broken', 'failed', 'stopped')),
  finish_reason text,
  input_tokens bigint,
  cached_tokens bigint,
  output_tokens bigint,
  reasoning_tokens bigint,
  price_version integer not null,
  cost bigint not null default 0,
  started_at timestamptz not null,
  first_byte_at timestamptz,
  ended_at timestamptz not null
);
create index request_log_of_key on request_log (key_id, ended_at desc);
create index request_log_of_account on request_log (account_id, ended_at desc);
create index request_log_age on request_log (ended_at);

alter table settlement enable row level security;
alter table settlement force row level security;
create policy settlement_account on settlement using (
  nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
alter table request_log enable row level security;
alter table request_log force row level security;
create policy request_log_account on request_log using (
  nullif(current_setting('app.account', true), '') in (account_id::text, 'system'));
