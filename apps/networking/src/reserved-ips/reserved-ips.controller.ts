import { Body, Controller, Delete, Get, Param, Post, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  V1ReservedIp,
  V1ReservedIpCreate,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { ReservedIpsService } from './reserved-ips.service.js';

const tag = 'networking';

/** `/vpcs/{vpc_id}/reserved-ips`. */
@Controller('v1/vpcs/:vpc_id/reserved-ips')
export class ReservedIpsController {
  constructor(private readonly reserved: ReservedIpsService) {}

  @Get()
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_list_reserved_ips',
    tag,
    summary: 'List the reserved addresses of a private network',
    permission: 'vpc:read',
    resource: 'vpc',
    answer: Page(V1ReservedIp),
  })
  list(@Caller() caller: KeyIdentity, @Param('vpc_id') vpc: string, @Query() page: PageQuery) {
    return this.reserved.list(caller, vpc, page);
  }

  @Post()
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_create_reserved_ip',
    tag,
    summary: 'Bind an address of a private network to a MAC',
    permission: 'vpc:write',
    resource: 'vpc',
    status: 201,
    body: V1ReservedIpCreate,
    answer: V1ReservedIp,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Param('vpc_id') vpc: string,
    @Body() body: V1ReservedIpCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1ReservedIp> {
    return this.reserved.create(caller, vpc, body, idem);
  }

  @Delete(':ip_id')
  @PathParams('vpc_id', 'ip_id')
  @Operation({
    id: 'networking_delete_reserved_ip',
    tag,
    summary: 'Free a reserved address',
    permission: 'vpc:write',
    resource: 'vpc',
    status: 204,
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('vpc_id') vpc: string,
    @Param('ip_id') id: string,
  ): Promise<void> {
    await this.reserved.delete(caller, vpc, id);
  }
}
