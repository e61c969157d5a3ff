import { Body, Controller, Delete, Get, Param, Post, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, PageQuery, V1AppDomain, V1DomainCreate } from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { DomainsService } from './domains.service.js';

const paths = ['projects/:project_id/apps/:app_id/domains', 'apps/:app_id/domains'];

/** Domains of apps: the default one, and custom ones. */
@Controller('v1')
export class DomainsController {
  constructor(private readonly domains: DomainsService) {}

  @Get(paths)
  @Operation({
    id: 'apps_list_domains',
    flatId: 'apps_list_domains_by_id',
    tag: 'apps',
    summary: 'List the domains of an app, the default one first',
    permission: 'app:read',
    resource: 'app',
    answer: Page(V1AppDomain),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query() page: PageQuery,
  ) {
    return this.domains.list(caller, project ?? null, app, page);
  }

  @Post(paths)
  @Operation({
    id: 'apps_add_domain',
    flatId: 'apps_add_domain_by_id',
    tag: 'apps',
    summary: 'Add a custom domain',
    permission: 'app:update',
    resource: 'app',
    status: 201,
    body: V1DomainCreate,
    answer: V1AppDomain,
  })
  async add(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Body() body: V1DomainCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1AppDomain> {
    return (await this.domains.add(caller, project ?? null, app, body, idem)).body;
  }

  @Delete(paths.map((path) => `${path}/:domain_id`))
  @Operation({
    id: 'apps_remove_domain',
    flatId: 'apps_remove_domain_by_id',
    tag: 'apps',
    summary: 'Remove a custom domain',
    permission: 'app:update',
    resource: 'app',
    status: 204,
  })
  async remove(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('domain_id') id: string,
  ): Promise<void> {
    await this.domains.remove(caller, project ?? null, app, id);
  }
}
