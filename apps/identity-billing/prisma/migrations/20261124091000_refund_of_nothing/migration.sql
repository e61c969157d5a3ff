-- As before, but nothing is paid back by no transfer. `refunded` stays zero then, so that a repeat looked like the first call and
-- wrote the same transfer again, which the ledger refuses for ever.
create or replace function money_refund(p_account uuid, p_operation text, p_amount bigint, p_description text)
returns setof reservation
language plpgsql as $$
declare
  r reservation%rowtype;
  v_amount bigint;
  v_money bigint;
  v_transfer uuid;
begin
  r := money_lock(p_account, p_operation);
  v_amount := coalesce(p_amount, r.captured);
  if r.state <> 'captured' or r.refunded > 0 or v_amount = 0 then
    return next r;
    return;
  end if;
  if v_amount > r.captured then
    raise exception 'amount' using errcode = 'NB422';
  end if;
  v_money := least(v_amount, r.captured - r.captured_credits);
  update balance b set posted = b.posted + v_money, credits = b.credits + (v_amount - v_money) where b.account_id = p_account;
  insert into transfer (account_id, kind, source_service, source_id, description, prices)
    values (p_account, 'refund', r.source_service, p_operation, p_description, r.prices) returning id into v_transfer;
  perform ledger_lines(p_account, v_transfer, array['money', 'revenue', 'credits', 'credits_spent'],
    array[v_money, -v_money, v_amount - v_money, v_money - v_amount]);
  update reservation q set refunded = v_amount
    where q.account_id = p_account and q.operation_id = p_operation returning q.* into r;
  return next r;
end $$;
