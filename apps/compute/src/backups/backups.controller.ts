import { Body, Controller, Delete, Get, Param, Post, Query, Res } from '@nestjs/common';
import {
  backupStatuses,
  DeleteAccepted,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  V1Backup,
  V1BackupCreate,
  V1BackupRestore,
  V1VM,
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
import { finalBackupStatuses } from './backup.mapper.js';
import { BackupsService } from './backups.service.js';
import { RestoresService } from './restores.service.js';

const paths = (tail = '') => [`projects/:project_id/vms/:vm_id/backups${tail}`, `vms/:vm_id/backups${tail}`];

@Controller('v1')
export class BackupsController {
  constructor(
    private readonly backups: BackupsService,
    private readonly restores: RestoresService,
    private readonly changes: Changes<Topic>,
  ) {}

  @Get(paths())
  @Operation({
    id: 'vms_list_backups',
    flatId: 'vms_list_backups_by_id',
    tag: 'vms',
    summary: 'List the backups of a machine; they are deleted with it',
    permission: 'vm:read',
    resource: 'vm',
    answer: Page(V1Backup),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') vm: string,
    @Query() page: PageQuery,
  ) {
    return this.backups.list(caller, project ?? null, vm, page);
  }

  @Post(paths())
  @Operation({
    id: 'vms_create_backup',
    flatId: 'vms_create_backup_by_id',
    tag: 'vms',
    summary: 'Make a backup of a machine, which runs on; it takes one of its backup slots',
    permission: 'vm:update',
    resource: 'vm',
    status: 201,
    body: V1BackupCreate,
    answer: V1Backup,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') vm: string,
    @Body() body: V1BackupCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1Backup> {
    return this.backups.create(caller, project ?? null, vm, body, idem);
  }

  @Get(paths('/:backup_id'))
  @Operation({
    id: 'vms_get_backup',
    flatId: 'vms_get_backup_by_id',
    tag: 'vms',
    summary: 'Read a backup',
    permission: 'vm:read',
    resource: 'vm',
    answer: V1Backup,
    query: waitQuery(backupStatuses),
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') vm: string,
    @Param('backup_id') id: string,
    @Query('wait') waitFor: unknown,
    @Query('timeout') timeout: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<V1Backup> {
    const look = () => this.backups.get(caller, project ?? null, vm, id);
    const wait = parseWait(waitFor, timeout, backupStatuses);
    if (wait === null) return look();
    return waitUntil(
      this.changes,
      `backup:${pathId(id)}`,
      wait.ms,
      clientGone(reply),
      look,
      ({ status }) => status === wait.state || finalBackupStatuses.includes(status),
    );
  }

  @Delete(paths('/:backup_id'))
  @Operation({
    id: 'vms_delete_backup',
    flatId: 'vms_delete_backup_by_id',
    tag: 'vms',
    summary: 'Delete a backup from any state',
    permission: 'vm:update',
    resource: 'vm',
    status: 202,
    answer: DeleteAccepted,
  })
  delete(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') vm: string,
    @Param('backup_id') id: string,
  ): Promise<DeleteAccepted> {
    return this.backups.delete(caller, project ?? null, vm, id);
  }

  @Post(paths('/:backup_id/restore'))
  @Operation({
    id: 'vms_restore_backup',
    flatId: 'vms_restore_backup_by_id',
    tag: 'vms',
    summary: 'Restore a backup into its machine, or into a new one; answers with that machine',
    permission: 'vm:update',
    resource: 'vm',
    status: 202,
    body: V1BackupRestore,
    answer: V1VM,
  })
  restore(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') vm: string,
    @Param('backup_id') id: string,
    @Body() body: unknown,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1VM> {
    return this.restores.restore(caller, project ?? null, vm, id, body, idem);
  }
}
