-- Its account is suspended: no replica runs whatever `replica_count` says, and no rollout begins.
alter table app add column suspended boolean not null default false;
create index app_suspended on app (account_id) where suspended;
