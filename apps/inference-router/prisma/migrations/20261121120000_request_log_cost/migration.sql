-- The log of requests for less work a row.

-- What the service asks for: how often a key left unbilled in the last hour, and what is too old to keep. Rows come in the
-- order of time, so a summary of each block range finds the old ones. By account the operator looks things up.
drop index request_log_of_key, request_log_age;
create index request_log_aborted on request_log (key_id, ended_at) where outcome = 'aborted' and cost = 0;
create index request_log_age on request_log using brin (ended_at) with (autosummarize = on);

-- As before (an empty or missing setting is no account either), but what the service's own writing needs stands first: it is
-- asked for every row.
alter policy request_log_account on request_log
  using (current_setting('app.account', true) in ('system', account_id::text));
alter policy key_month_account on key_month
  using (current_setting('app.account', true) in ('system', account_id::text));

-- Writes rows of the log, a list for each column, and adds what they came to for each key and month; one round trip.
-- Times are milliseconds since 1970.
create function request_log_write(
  p_operation uuid[], p_request text[], p_account uuid[], p_key uuid[], p_format text[], p_model text[], p_upstream text[],
  p_streamed boolean[], p_status integer[], p_outcome text[], p_finish text[], p_input bigint[], p_cached bigint[],
  p_output bigint[], p_reasoning bigint[], p_price integer[], p_cost bigint[], p_started float8[], p_first_byte float8[],
  p_ended float8[],
  p_month_key uuid[], p_month_account uuid[], p_month text[], p_spent bigint[], p_forgone bigint[], p_aborts integer[])
returns void language plpgsql as $$
begin
  perform set_config('app.account', 'system', true);
  -- No money: what was asked and how it ended is in the ledger and the settlement log. A crash of the server may lose the
  -- last moment of this log, as a crash of the service does; the commit need not wait for the disk.
  perform set_config('synchronous_commit', 'off', true);
  insert into request_log (operation_id, request_id, account_id, key_id, format, model, upstream, streamed, status, outcome,
      finish_reason, input_tokens, cached_tokens, output_tokens, reasoning_tokens, price_version, cost,
      started_at, first_byte_at, ended_at)
    select r.operation, r.request, r.account, r.key, r.format, r.model, r.upstream, r.streamed, r.status, r.outcome,
      r.finish, r.input, r.cached, r.output, r.reasoning, r.price, r.cost,
      to_timestamp(r.started / 1000), to_timestamp(r.first_byte / 1000), to_timestamp(r.ended / 1000)
    from unnest(p_operation, p_request, p_account, p_key, p_format, p_model, p_upstream, p_streamed, p_status, p_outcome,
      p_finish, p_input, p_cached, p_output, p_reasoning, p_price, p_cost, p_started, p_first_byte, p_ended)
      as r (operation, request, account, key, format, model, upstream, streamed, status, outcome,
        finish, input, cached, output, reasoning, price, cost, started, first_byte, ended)
    on conflict do nothing;
  -- In one order, so that two writers never wait for each other.
  insert into key_month as m (key_id, account_id, month, spent, forgone, aborts)
    select * from unnest(p_month_key, p_month_account, p_month, p_spent, p_forgone, p_aborts) order by 1, 3
    on conflict (key_id, month) do update set spent = m.spent + excluded.spent,
      forgone = m.forgone + excluded.forgone, aborts = m.aborts + excluded.aborts;
end $$;
