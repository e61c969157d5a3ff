-- A repeated request gets the very bytes of the first answer: jsonb would put the fields in another order.
alter table idempotency_key alter column body type json using body::json;
