import { Controller, Get, HttpCode, Post, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Inventory, ServiceIdentity } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingService, inventoryPage } from '@nebo/service-kit';
import { ReconcileService } from '../ledger/reconcile.service.js';

/** What is charged by time now, and what machines and networks hold; their ids are those of the callers' operations. */
const everything = `
  select 'billing_span' as kind, operation_id as id, account_id, array[resource] as refers, 'open' as state
    from span where ended_at is null
  union all
  select 'reservation', operation_id, account_id, array[]::text[],
    case when expires_at < now() - interval '30 seconds' then 'overdue' else 'held' end
    from reservation where state = 'held' and source_service in ('compute', 'networking')`;

/** The money's part of an audit (libs/contracts/src/internal/inventory.ts). */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class InventoryController {
  constructor(
    private readonly database: Database,
    private readonly reconciler: ReconcileService,
  ) {}

  /** @throws ApiError 403 for a service that acts for one account, 422 for an `after` that is no `kind:id` */
  @Get('inventory')
  list(@CallingService() caller: ServiceIdentity, @Query('after') after: unknown): Promise<Inventory> {
    return inventoryPage(this.database, everything, caller, after);
  }

  @Post('reconcile')
  @HttpCode(200)
  reconcile() {
    return this.reconciler.run();
  }
}
