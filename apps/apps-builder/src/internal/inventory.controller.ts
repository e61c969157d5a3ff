import { Controller, Get, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Inventory, ServiceIdentity } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingService, inventoryPage } from '@nebo/service-kit';

/**
 * Apps with the ports that were claimed for them, those ports with what sits on each, and replicas and runs that their region
 * may still have, as kind, id, account, what it names and its state. A port has its id at networking.
 */
const everything = `
  select 'app' as kind, a.id::text as id, a.account_id,
    array['region:' || a.region_id] || array(
      select 'port:' || t.id from app_port t where t.app_id = a.id and t.address is not null order by t.id) as refers,
    case when a.deleted_at is null then 'there'
      when exists (select 1 from lifecycle l where l.kind = 'rollout' and l.id = a.id and l.ended_at is null) then 'deleting'
      else 'deleted' end as state
  from app a
  union all
  select 'app_port', t.id::text, t.account_id,
    array['app:' || t.app_id, coalesce('replica:' || t.replica_id, 'job_run:' || t.run_id)]
      || case when t.address is null then '{}' else array['vpc:' || t.vpc_id, 'port:' || t.id] end,
    coalesce(l.state, 'lost')
  from app_port t left join lifecycle l on l.kind = 'app_port' and l.id = t.id and l.ended_at is null
  union all
  select 'replica', p.id::text, p.account_id, array['app:' || p.app_id] || array_remove(array['app_port:' || p.port_id], null),
    case when p.gone then 'leaving' else 'wanted' end
  from replica p where p.ended_at is null
  union all
  select 'job_run', r.id::text, r.account_id, array['app:' || r.app_id] || array_remove(array['app_port:' || r.port_id], null),
    case when r.gone then 'leaving' else r.status end
  from job_run r where r.status in ('queued', 'running')
    or (r.port_id is not null and r.gone and coalesce(r.observed_state, 'running') = 'running')`;

/** What of this service has to do with networks, for an audit (libs/contracts/src/internal/inventory.ts). */
@ApiExcludeController()
@Controller(['internal/v1/inventory', 'internal/v1/operator/inventory'])
export class InventoryController {
  constructor(private readonly database: Database) {}

  /** @throws ApiError 403 for a service that acts for one account, 422 for an `after` that is no `kind:id` */
  @Get()
  list(@CallingService() caller: ServiceIdentity, @Query('after') after: unknown): Promise<Inventory> {
    return inventoryPage(this.database, everything, caller, after);
  }
}
