import { Body, Controller, Delete, Get, Param, Patch, Post, Query, Res } from '@nestjs/common';
import {
  floatingIpStatuses,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1FloatingIP,
  V1FloatingIPAttach,
  V1FloatingIPCreate,
  V1FloatingIPUpdate,
} from '@nebo/contracts';
import {
  Caller,
  Changes,
  clientGone,
  Idempotent,
  type IdempotentRequest,
  parseWait,
  pathId,
  waitQuery,
  waitUntil,
} from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import type { Topic } from '../shared/topics.js';
import { AttachmentsService } from './attachments.service.js';
import { FloatingIpsService } from './floating-ips.service.js';

const tag = 'networking';

class FloatingIpsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this region' })
  cluster_id?: string | null;
}

/** `/floating-ips`. */
@Controller('v1/floating-ips')
export class FloatingIpsController {
  constructor(
    private readonly addresses: FloatingIpsService,
    private readonly attachments: AttachmentsService,
    private readonly changes: Changes<Topic>,
  ) {}

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
    query: waitQuery(floatingIpStatuses),
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('fip_id') id: string,
    @Query('wait') state: unknown,
    @Query('timeout') timeout: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<V1FloatingIP> {
    const wait = parseWait(state, timeout, floatingIpStatuses);
    const look = () => this.addresses.get(caller, id);
    if (wait === null) return look();
    const ended = ({ status }: V1FloatingIP) => status === wait.state || status === 'error';
    return waitUntil(this.changes, `floating_ip:${pathId(id)}`, wait.ms, clientGone(reply), look, ended);
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
    summary: 'Release a public address that is attached to nothing; its charge ends',
    permission: 'floating_ip:write',
    resource: 'floating_ip',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('fip_id') id: string): Promise<void> {
    await this.addresses.delete(caller, id);
  }

  @Post(':fip_id/attach')
  @PathParams('fip_id')
  @Operation({
    id: 'networking_attach_floating_ip',
    tag,
    summary: 'Attach an available public address to an interface of a machine',
    permission: 'floating_ip:write',
    resource: 'floating_ip',
    body: V1FloatingIPAttach,
    answer: V1FloatingIP,
  })
  attach(
    @Caller() caller: KeyIdentity,
    @Param('fip_id') id: string,
    @Body() body: V1FloatingIPAttach,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1FloatingIP> {
    return this.attachments.attach(caller, id, body, idem);
  }

  @Post(':fip_id/detach')
  @PathParams('fip_id')
  @Operation({
    id: 'networking_detach_floating_ip',
    tag,
    summary: 'Detach a public address from its machine; one that is attached to nothing stays as it is',
    permission: 'floating_ip:write',
    resource: 'floating_ip',
    answer: V1FloatingIP,
  })
  detach(
    @Caller() caller: KeyIdentity,
    @Param('fip_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1FloatingIP> {
    return this.attachments.detach(caller, id, idem);
  }
}
