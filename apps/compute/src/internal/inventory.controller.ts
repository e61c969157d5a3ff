import { Controller, Get, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Inventory, ServiceIdentity } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingService, inventoryPage } from '@nebo/service-kit';

/**
 * Everything as kind, id, account, what it names and its state. A machine's reservation at identity-billing has its id, an
 * interface's port at networking that of the interface. A blob that is `unowned` goes after a day.
 */
const everything = `
  select 'vm' as kind, v.id::text as id, v.account_id,
    array['region:' || v.region_id, 'image:' || v.image_id, 'reservation:' || v.id]
      || array(select 'port:' || i.id from vm_interface i where i.vm_id = v.id and i.address is not null order by i.position)
      || case when v.ephemeral and v.phase <> 'error' then array['vm_span:' || coalesce(
           (select s.id::text from vm_span s where s.vm_id = v.id and s.ended_at is null), 'none')] else '{}' end
      || array_remove(array['blob:' || v.restore_sha256], null) as refers,
    case when v.deleted_at is null then v.phase else 'deleting' end as state
  from vm v
  union all
  select 'renewal', id::text, account_id, array['vm:' || vm_id, 'reservation:' || id], state from vm_renewal
  union all
  select 'resize', id::text, account_id, array['vm:' || vm_id], state from vm_resize
  union all
  select 'vm_span', s.id::text, s.account_id, case when s.ended_at is null then array['vm:' || s.vm_id] else '{}' end,
    case when s.ended_at is null then l.state else 'closing' end
  from vm_span s left join lifecycle l on l.kind = 'vm_span' and l.id = s.id
  union all
  select 'backup', id::text, account_id,
    array['vm:' || vm_id] || array_remove(array['blob:' || sha256], null),
    case when deleted_at is null then phase else 'deleting' end
  from vm_backup
  union all
  select 'image', id::text, null::uuid, array_remove(array['blob:' || sha256], null),
    case when withdrawn_at is null then 'offered' else 'withdrawn' end
  from image
  union all
  select 'blob', b.sha256, null::uuid, o.owners, case when cardinality(o.owners) = 0 then 'unowned' else 'owned' end
  from blob b cross join lateral (select array(
    select 'image:' || id from image i where i.sha256 = b.sha256
      and (i.withdrawn_at is null or exists (select 1 from vm where image_id = i.id))
    union all select 'backup:' || id from vm_backup where sha256 = b.sha256
    union all select 'vm:' || id from vm where restore_sha256 = b.sha256) as owners) o`;

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
