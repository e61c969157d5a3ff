-- Events leave through the outbox, in the transaction of their cause, and enter through the inbox, in that of their effect.
create table outbox (
  seq bigint generated always as identity primary key,
  id uuid not null unique,
  subject text not null,
  envelope jsonb not null,
  created_at timestamptz not null default now(),
  sent_at timestamptz,
  -- The bus's store that took it and may still lose it; null when not sent, or when every consumer is known to be done.
  store text
);
-- Sequence numbers become visible out of order across transactions, so the relay scans "not sent", never "greater than last".
create index outbox_unsent on outbox (seq) where sent_at is null;
create index outbox_sent on outbox (sent_at) where sent_at is not null;

create index outbox_store on outbox (store) where store is not null;

create table inbox (
  consumer text not null,
  event_id uuid not null,
  received_at timestamptz not null default now(),
  primary key (consumer, event_id)
);
create index inbox_received on inbox (received_at);

create function outbox_notify() returns trigger language plpgsql as $$
begin
  perform pg_notify(tg_table_schema || '_outbox', '');
  return null;
end $$;
create trigger outbox_notify after insert on outbox for each statement execute function outbox_notify();
