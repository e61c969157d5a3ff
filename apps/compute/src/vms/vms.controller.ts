import { Body, Controller, Delete, Get, Param, Patch, Post, Query, Res } from '@nestjs/common';
import {
  DeleteAccepted,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  StrField,
  V1VM,
  V1VMCreate,
  V1VMUpdate,
  vmStatuses,
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
import { badVmStatuses } from './vm.mapper.js';
import { VmAddresses } from './vm-addresses.js';
import { VmOrdersService } from './vm-orders.service.js';
import { VmsService } from './vms.service.js';
import type { Topic } from '../shared/topics.js';

class VmsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this project' })
  project_id?: string | null;
}

@Controller('v1')
export class VmsController {
  constructor(
    private readonly vms: VmsService,
    private readonly orders: VmOrdersService,
    private readonly addresses: VmAddresses,
    private readonly changes: Changes<Topic>,
  ) {}

  @Get('projects/:project_id/vms')
  @Operation({
    id: 'vms_list_vms',
    tag: 'vms',
    summary: 'List the machines of a project',
    permission: 'vm:read',
    resource: 'project',
    answer: Page(V1VM),
  })
  list(@Caller() caller: KeyIdentity, @Param('project_id') project: string, @Query() page: PageQuery) {
    return this.vms.list(caller, project, page);
  }

  @Get('vms')
  @Operation({
    id: 'vms_list_vms_by_account',
    tag: 'vms',
    summary: 'List the machines that the key may see',
    permission: 'vm:read',
    resource: 'list',
    answer: Page(V1VM),
  })
  listByAccount(@Caller() caller: KeyIdentity, @Query() page: VmsQuery) {
    return this.vms.list(caller, page.project_id ?? null, page);
  }

  @Post('projects/:project_id/vms')
  @Operation({
    id: 'vms_create_vm',
    tag: 'vms',
    summary: 'Order a machine; its period is paid at once',
    permission: 'vm:create',
    resource: 'project',
    status: 201,
    body: V1VMCreate,
    answer: V1VM,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string,
    @Body() body: V1VMCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1VM> {
    return (await this.orders.create(caller, project, body, idem)).body;
  }

  @Get(['projects/:project_id/vms/:vm_id', 'vms/:vm_id'])
  @Operation({
    id: 'vms_get_vm',
    flatId: 'vms_get_vm_by_id',
    tag: 'vms',
    summary: 'Read a machine',
    permission: 'vm:read',
    resource: 'vm',
    answer: V1VM,
    query: waitQuery(vmStatuses),
  })
  async get(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
    @Query('wait') waitFor: unknown,
    @Query('timeout') timeout: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<V1VM> {
    const look = () => this.vms.look(caller, project ?? null, id);
    const wait = parseWait(waitFor, timeout, vmStatuses);
    if (wait === null) return this.vms.get(caller, project ?? null, id);
    const reached = await waitUntil(
      this.changes,
      `vm:${pathId(id)}`,
      wait.ms,
      clientGone(reply),
      look,
      ({ status }) => status === wait.state || badVmStatuses.includes(status),
    );
    return this.addresses.of(caller.account_id, reached);
  }

  @Patch(['projects/:project_id/vms/:vm_id', 'vms/:vm_id'])
  @Operation({
    id: 'vms_update_vm',
    flatId: 'vms_update_vm_by_id',
    tag: 'vms',
    summary: 'Change the name of a machine, whether it is renewed, or its size upwards',
    permission: 'vm:update',
    resource: 'vm',
    body: V1VMUpdate,
    answer: V1VM,
  })
  update(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
    @Body() body: V1VMUpdate,
  ): Promise<V1VM> {
    return this.vms.update(caller, project ?? null, id, body);
  }

  @Delete(['projects/:project_id/vms/:vm_id', 'vms/:vm_id'])
  @Operation({
    id: 'vms_delete_vm',
    flatId: 'vms_delete_vm_by_id',
    tag: 'vms',
    summary: 'Delete a machine with its backups from any state',
    permission: 'vm:delete',
    resource: 'vm',
    status: 202,
    answer: DeleteAccepted,
  })
  delete(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
  ): Promise<DeleteAccepted> {
    return this.vms.delete(caller, project ?? null, id);
  }
}
