-- Many networks and ports: the account is read once a statement and compared as a uuid: as a text, row by row, it took longer
-- than reading the rows, and the planner took every account for a small one.
do $$
declare name text;
begin
  foreach name in array array['vpc', 'port', 'floating_ip', 'span', 'nat_gateway'] loop
    execute format(
      'alter policy tenant on %I using ((select current_setting(''app.account'', true) = ''system'')
         or account_id = (select nullif(nullif(current_setting(''app.account'', true), ''''), ''system'')::uuid))
       with check ((select current_setting(''app.account'', true) = ''system'')
         or account_id = (select nullif(nullif(current_setting(''app.account'', true), ''''), ''system'')::uuid))', name);
  end loop;
end $$;

-- Full answers to agents come in pages.
create index vpc_region on vpc (region_id, id);
