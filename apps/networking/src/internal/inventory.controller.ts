import { Controller, Get, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Inventory, ServiceIdentity } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingService, inventoryPage } from '@nebo/service-kit';

/** Everything as kind, id, account, what it names and its state; released addresses and closed spans are on their way out. */
const everything = `
  select 'vpc' as kind, id::text, account_id, array['region:' || region_id] as refers,
    case when deleted_at is null then status else 'deleting' end as state from vpc
  union all
  select kind, id, account_id, refers, state from (
    select case when kind = 'reserved_ip' then kind else 'port' end as kind, id::text, account_id,
      array_remove(array['vpc:' || vpc_id, case when kind = 'reserved_ip' then 'port:' || bound_to else owner end], null) as refers,
      null as state
    from port) p
  union all
  select 'nat_gateway', id::text, account_id, array['vpc:' || vpc_id, 'port:' || id, 'floating_ip:' || fip_id], status
    from nat_gateway
  union all
  select 'floating_ip', f.id::text, f.account_id,
    array_remove(array['pool_address:' || f.region_id || '/' || host(f.address), 'span:' || s.id, 'vpc:' || f.vpc_id,
      'port:' || f.port_id], null),
    case when f.released_at is null then f.status else 'releasing' end
    from floating_ip f left join span s on s.fip_id = f.id and s.ended_at is null
  union all
  select 'span', s.id::text, s.account_id, case when s.ended_at is null then array['floating_ip:' || s.fip_id] else '{}' end,
    case when s.ended_at is null then l.state else 'closing' end
  from span s left join lifecycle l on l.kind = 'span' and l.id = s.id
  union all
  select 'pool_address', region_id || '/' || host(address), null::uuid, array['floating_ip:' || held_by], 'held'
    from pool_address where held_by is not null`;

/** All that this service keeps, for an audit (libs/contracts/src/internal/inventory.ts). */
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
