-- Who makes operation ids is the service of each kind, and none knows the others': one kind's must never keep another's out.
alter table usage_record add constraint usage_record_once unique (account_id, kind, operation_id);
alter table usage_record drop constraint usage_record_account_id_operation_id_key;
