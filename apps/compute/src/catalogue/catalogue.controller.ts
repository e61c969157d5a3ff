import { Controller, Get, Query } from '@nestjs/common';
import {
  ImagesListResponse,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1Region,
  V1VMPlan,
} from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import { CatalogueService } from './catalogue.service.js';

class ImagesQuery {
  @StrField({ nullable: true, optional: true, description: 'Only what this region has' })
  cluster_id?: string | null;
}

@Controller('v1')
export class CatalogueController {
  constructor(private readonly catalogue: CatalogueService) {}

  @Get('regions')
  @Operation({
    id: 'regions_list_regions',
    tag: 'vms',
    summary: 'List the regions',
    permission: [],
    resource: 'key',
    answer: Page(V1Region),
  })
  regions(@Query() page: PageQuery) {
    return this.catalogue.regions(page);
  }

  @Get('vm-plans')
  @Operation({
    id: 'vms_list_vm_plans',
    tag: 'vms',
    summary: 'List the sizes of machines with their prices',
    permission: 'vm:read',
    resource: 'list',
    answer: Page(V1VMPlan),
  })
  plans(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    return this.catalogue.plans(caller, page);
  }

  @Get('projects/:project_id/images')
  @PathParams('project_id')
  @Operation({
    id: 'vms_list_images',
    tag: 'vms',
    summary: 'List the images that machines can be made from',
    permission: 'vm:read',
    resource: 'project',
    answer: ImagesListResponse,
  })
  images(@Query() query: ImagesQuery): Promise<ImagesListResponse> {
    return this.catalogue.images(query.cluster_id ?? null);
  }
}
