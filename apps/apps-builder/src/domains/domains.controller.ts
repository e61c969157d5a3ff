import { Controller, Get, Param, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, pageOf, PageQuery, V1AppDomain } from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import type { AppDomain } from '../generated/prisma/client.js';
import { Store } from '../shared/prisma.js';

/** Domains of apps. Adding and removing custom ones comes with its issue; until then the default one is listed. */
@Controller('v1')
export class DomainsController {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
  ) {}

  @Get(['projects/:project_id/apps/:app_id/domains', 'apps/:app_id/domains'])
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
    @Param('app_id') id: string,
    @Query() page: PageQuery,
  ) {
    return this.store.as(caller.account_id, async ({ db }) => {
      const app = await this.apps.find(db, caller, project ?? null, id);
      const where = { app_id: app.id };
      const total = await db.appDomain.count({ where });
      const rows = await db.appDomain.findMany({
        where,
        orderBy: [{ is_default: 'desc' }, { created_at: 'asc' }, { id: 'asc' }],
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(rows.map(domainRecord), total, page);
    });
  }
}

/** A row as the contract's record. */
export function domainRecord(row: AppDomain): V1AppDomain {
  return {
    id: row.id,
    app_id: row.app_id,
    domain: row.host,
    status: row.status,
    type: row.type,
    is_default: row.is_default,
    build_id: row.build_id,
    dns_configured: row.dns_configured,
    target_ip: row.target_ip,
    certificate_id: row.certificate_id,
    error: row.error,
    created_at: row.created_at.toISOString(),
  };
}
