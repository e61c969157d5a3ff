-- Drain mode looks at all keys of an account together: a new key must not be a new allowance.
create index key_month_of_account on key_month (account_id, month);
