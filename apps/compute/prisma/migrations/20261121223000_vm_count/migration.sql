-- How many machines a project lists, kept by triggers: counting 100,000 for each page took longer than the page.
create table vm_count (
  account_id uuid not null,
  project_id uuid not null,
  machines integer not null check (machines >= 0),
  primary key (account_id, project_id)
) with (fillfactor = 50);

select set_config('app.account', 'system', true);
insert into vm_count (account_id, project_id, machines)
  select account_id, project_id, count(*) from vm where not unlisted group by 1, 2;

alter table vm_count enable row level security;
alter table vm_count force row level security;
create policy tenant on vm_count
  using ((select current_setting('app.account', true) = 'system')
    or account_id = (select nullif(nullif(current_setting('app.account', true), ''), 'system')::uuid))
  with check ((select current_setting('app.account', true) = 'system')
    or account_id = (select nullif(nullif(current_setting('app.account', true), ''), 'system')::uuid));

create function vm_counted() returns trigger language plpgsql as $$
declare
  change integer := (tg_op <> 'DELETE' and not new.unlisted)::integer - (tg_op <> 'INSERT' and not old.unlisted)::integer;
begin
  if change = 0 then
    return null;
  end if;
  update vm_count set machines = machines + change
    where account_id = coalesce(new.account_id, old.account_id) and project_id = coalesce(new.project_id, old.project_id);
  if not found then
    insert into vm_count as c (account_id, project_id, machines)
      values (coalesce(new.account_id, old.account_id), coalesce(new.project_id, old.project_id), change)
      on conflict (account_id, project_id) do update set machines = c.machines + change;
  end if;
  return null;
end $$;
-- At the commit, so that the orders of a project wait for each other's commit only, not for each other's work.
create constraint trigger vm_counted after insert or delete on vm deferrable initially deferred
  for each row execute function vm_counted();
create constraint trigger vm_counted_unlisted after update on vm deferrable initially deferred
  for each row when (old.unlisted is distinct from new.unlisted) execute function vm_counted();
