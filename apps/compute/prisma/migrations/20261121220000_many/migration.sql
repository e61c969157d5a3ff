-- 100,000 machines: what is asked of many costs as little as of few.

-- The account is read once a statement and compared as a uuid: as a text, row by row, it took longer than reading the rows,
-- and the planner took every account for a small one.
do $$
declare name text;
begin
  foreach name in array array['ssh_key', 'vm', 'vm_interface', 'vm_renewal', 'vm_backup', 'vm_span', 'vm_resize'] loop
    execute format(
      'alter policy tenant on %I using ((select current_setting(''app.account'', true) = ''system'')
         or account_id = (select nullif(nullif(current_setting(''app.account'', true), ''''), ''system'')::uuid))
       with check ((select current_setting(''app.account'', true) = ''system'')
         or account_id = (select nullif(nullif(current_setting(''app.account'', true), ''''), ''system'')::uuid))', name);
  end loop;
end $$;

-- Pages of lists, and how many there are, without the rows.
create index vm_pages on vm (account_id, created_at, id) include (project_id) where not unlisted;
drop index vm_listed;

-- Full answers to agents come in pages.
create index vm_handed on vm (region_id, id) where handed;
