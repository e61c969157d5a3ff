import { Body, Controller, Delete, Get, Param, Patch, Post, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1FloatingIP,
  V1FloatingIPCreate,
  V1FloatingIPUpdate,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { FloatingIpsService } from './floating-ips.service.js';

const tag = 'networking';

class FloatingIpsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this region' })
  cluster_id?: string | null;
}

/** `/floating-ips`. */
@Controller('v1/floating-ips')
export class FloatingIpsController {
  constructor(private readonly addresses: FloatingIpsService) {}

  @Get()
  @Operation({
    id: 'networking_list_floating_ips',
    tag,
    summary: 'List the public addresses that the key may see',
    permission: 'floating_ip:read',
    resource: 'list',
    answer: Page(V1FloatingIP),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: FloatingIpsQuery) {
    return this.addresses.list(caller, page.cluster_id ?? null, page);
  }

  @Post()
  @Operation({
    id: 'networking_create_floating_ip',
    tag,
    summary: 'Order a public address; a month’s price must be available',
    permission: 'floating_ip:write',
    resource: 'account',
    status: 201,
    body: V1FloatingIPCreate,
    answer: V1FloatingIP,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1FloatingIPCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1FloatingIP> {
    return this.addresses.create(caller, body, idem);
  }

  @Get(':fip_id')
  @PathParams('fip_id')
  @Operation({
    id: 'networking_get_floating_ip',
    tag,
    summary: 'Read a public address',
    permission: 'floating_ip:read',
    resource: 'floating_ip',
    answer: V1FloatingIP,
  })
  get(@Caller() caller: KeyIdentity, @Param('fip_id') id: string): Promise<V1FloatingIP> {
    return this.addresses.get(caller, id);
  }

  @Patch(':fip_id')
  @PathParams('fip_id')
  @Operation({
    id: 'networking_update_floating_ip',
    tag,
    summary: 'Label a public address; null or an empty body clears the label',
    permission: 'floating_ip:write',
    resource: 'floating_ip',
    body: V1FloatingIPUpdate,
    answer: V1FloatingIP,
  })
  update(
    @Caller() caller: KeyIdentity,
    @Param('fip_id') id: string,
    @Body() body: V1FloatingIPUpdate,
  ): Promise<V1FloatingIP> {
    return this.addresses.update(caller, id, body);
  }

  @Delete(':fip_id')
  @PathParams('fip_id')
  @Operation({
    id: 'networking_delete_floating_ip',
    tag,
    summary: 'Release a public address; its charge ends',
    permission: 'floating_ip:write',
    resource: 'floating_ip',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('fip_id') id: string): Promise<void> {
    await this.addresses.delete(caller, id);
  }
}
