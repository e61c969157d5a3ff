import { Controller, Get, Param, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, PageQuery, V1AppDelivery } from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import { DeliveriesService } from './deliveries.service.js';

@Controller('v1')
export class DeliveriesController {
  constructor(private readonly deliveries: DeliveriesService) {}

  @Get(['projects/:project_id/apps/:app_id/deliveries', 'apps/:app_id/deliveries'])
  @Operation({
    id: 'apps_list_deliveries',
    flatId: 'apps_list_deliveries_by_id',
    tag: 'apps',
    summary: 'What the git host said of the repository, and what became of it; newest first',
    permission: 'app:read',
    resource: 'app',
    answer: Page(V1AppDelivery),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query() page: PageQuery,
  ) {
    return this.deliveries.list(caller, project ?? null, app, page);
  }
}
