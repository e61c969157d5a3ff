-- GET of one app is the hottest read. Requests of the same moment, of whatever accounts, are read in one round trip
-- (BatchedRead of libs/persistence): a JSON array in the order asked, null for what is not there. Each app is read in a
-- statement of its own under the account that asks for it, so row-level security binds every one as if it came alone.
-- app_get stays for replicas of the release before.
create function app_get_many(accounts text[], wanted uuid[]) returns json language plpgsql as $$
declare
  found json[];
  one json;
begin
  for place in 1 .. cardinality(wanted) loop
    perform set_config('app.account', accounts[place], true);
    select row_to_json(r) into one from (
      select a.id, a.project_id, a.region_id, a.name, a.app_type, a.runtime_type, a.source_type, a.source_error, a.git_provider,
        a.repo_full_name, a.branch, a.auto_deploy, a.docker_image, a.running_docker_image, a.running_docker_image_digest,
        a.predeploy_command, a.readiness_path, a.vpc_id, a.replica_count, a.replica_vcpu, a.replica_memory_mb,
        a.deploy_strategy, a.current_build_id, a.created_at, a.updated_at,
        b.status as newest_status, b.deploy_state as newest_deploy_state
      from app a
      left join lateral (select n.status, n.deploy_state from build n where n.app_id = a.id order by n.seq desc limit 1) b on true
      where a.id = wanted[place] and a.account_id = accounts[place]::uuid and a.deleted_at is null
    ) r;
    found := array_append(found, one);
  end loop;
  return array_to_json(found);
end $$;
