-- Answers kept for a repeated Idempotency-Key, written in the transaction of the effect.
create table idempotency_key (
  scope text not null,
  key text not null,
  request_hash text not null,
  status integer,
  body jsonb,
  resource_id uuid,
  created_at timestamptz not null default now(),
  primary key (scope, key)
);
create index idempotency_key_created on idempotency_key (created_at);
