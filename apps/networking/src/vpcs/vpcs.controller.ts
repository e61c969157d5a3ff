import { Body, Controller, Delete, Get, Param, Patch, Post, Query, Res } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1Vpc,
  V1VpcCreate,
  V1VpcUpdate,
  vpcStatuses,
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
import { VpcsService } from './vpcs.service.js';
import type { Topic } from '../shared/topics.js';

const tag = 'networking';

class VpcsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this region' })
  cluster_id?: string | null;
}

/** `/vpcs`. */
@Controller('v1')
export class VpcsController {
  constructor(
    private readonly vpcs: VpcsService,
    private readonly changes: Changes<Topic>,
  ) {}

  @Get('vpcs')
  @Operation({
    id: 'networking_list_vpcs',
    tag,
    summary: 'List the private networks that the key may see',
    permission: 'vpc:read',
    resource: 'list',
    answer: Page(V1Vpc),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: VpcsQuery) {
    return this.vpcs.list(caller, page.cluster_id ?? null, page);
  }

  @Post('vpcs')
  @Operation({
    id: 'networking_create_vpc',
    tag,
    summary: 'Create a private network',
    permission: 'vpc:write',
    resource: 'account',
    status: 201,
    body: V1VpcCreate,
    answer: V1Vpc,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1VpcCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1Vpc> {
    return this.vpcs.create(caller, body, idem);
  }

  @Get('vpcs/:vpc_id')
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_get_vpc',
    tag,
    summary: 'Read a private network',
    permission: 'vpc:read',
    resource: 'vpc',
    answer: V1Vpc,
    query: waitQuery(vpcStatuses),
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('vpc_id') id: string,
    @Query('wait') state: unknown,
    @Query('timeout') timeout: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<V1Vpc> {
    const wait = parseWait(state, timeout, vpcStatuses);
    const look = () => this.vpcs.get(caller, id);
    if (wait === null) return look();
    const ended = ({ status }: V1Vpc) => status === wait.state || status === 'error';
    return waitUntil(this.changes, `vpc:${pathId(id)}`, wait.ms, clientGone(reply), look, ended);
  }

  @Patch('vpcs/:vpc_id')
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_update_vpc',
    tag,
    summary: 'Rename a private network',
    permission: 'vpc:write',
    resource: 'vpc',
    body: V1VpcUpdate,
    answer: V1Vpc,
  })
  update(
    @Caller() caller: KeyIdentity,
    @Param('vpc_id') id: string,
    @Body() body: V1VpcUpdate,
  ): Promise<V1Vpc> {
    return this.vpcs.update(caller, id, body);
  }

  @Delete('vpcs/:vpc_id')
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_delete_vpc',
    tag,
    summary: 'Delete a private network that has no ports',
    permission: 'vpc:write',
    resource: 'vpc',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('vpc_id') id: string): Promise<void> {
    await this.vpcs.delete(caller, id);
  }
}
