import { Body, Controller, Delete, Get, Param, Patch, Post, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1Zone,
  V1ZoneCreate,
  V1ZoneUpdate,
  zoneStatuses,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { ZonesService } from './zones.service.js';

const tag = 'dns';

class ZonesQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: `Only this status: ${zoneStatuses.join(', ')}` })
  status_filter?: string | null;
  @StrField({ nullable: true, optional: true, max: 254, description: 'Only names that contain this' })
  search?: string | null;
}

/** `/dns/zones`. */
@Controller('v1')
export class ZonesController {
  constructor(private readonly zones: ZonesService) {}

  @Get('dns/zones')
  @Operation({
    id: 'dns_list_zones',
    tag,
    summary: 'List the DNS zones that the key may see',
    permission: 'dns_zone:read',
    resource: 'list',
    answer: Page(V1Zone),
  })
  list(@Caller() caller: KeyIdentity, @Query() query: ZonesQuery) {
    return this.zones.list(caller, query, query);
  }

  @Post('dns/zones')
  @Operation({
    id: 'dns_create_zone',
    tag,
    summary: 'Create a DNS zone',
    permission: 'dns_zone:write',
    resource: 'account',
    status: 201,
    body: V1ZoneCreate,
    answer: V1Zone,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1ZoneCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1Zone> {
    return this.zones.create(caller, body, idem);
  }

  @Get('dns/zones/:zone_id')
  @PathParams('zone_id')
  @Operation({
    id: 'dns_get_zone',
    tag,
    summary: 'Read a DNS zone',
    permission: 'dns_zone:read',
    resource: 'dns_zone',
    answer: V1Zone,
  })
  get(@Caller() caller: KeyIdentity, @Param('zone_id') id: string): Promise<V1Zone> {
    return this.zones.get(caller, id);
  }

  @Patch('dns/zones/:zone_id')
  @PathParams('zone_id')
  @Operation({
    id: 'dns_update_zone',
    tag,
    summary: 'Change the default TTL of a DNS zone',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    body: V1ZoneUpdate,
    answer: V1Zone,
  })
  update(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') id: string,
    @Body() body: V1ZoneUpdate,
  ): Promise<V1Zone> {
    return this.zones.update(caller, id, body);
  }

  @Delete('dns/zones/:zone_id')
  @PathParams('zone_id')
  @Operation({
    id: 'dns_delete_zone',
    tag,
    summary: 'Delete a DNS zone with all its records',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('zone_id') id: string): Promise<void> {
    await this.zones.delete(caller, id);
  }

  @Post('dns/zones/:zone_id/verify')
  @PathParams('zone_id')
  @Operation({
    id: 'dns_verify_zone',
    tag,
    summary: 'Check whether the parent zone delegates to our name servers',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    answer: V1Zone,
  })
  verify(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1Zone> {
    return this.zones.verify(caller, id, idem);
  }
}
