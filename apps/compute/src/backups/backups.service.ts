import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  type DeleteAccepted,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1Backup,
  type V1BackupCreate,
} from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, fieldError, type IdempotentRequest, notFound, once, pathId } from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { lockVm, type VmRow } from '../vms/vm.rows.js';
import { backupRecord } from './backup.mapper.js';
import { backupColumns, type BackupRow, lockBackup, readBackup, takesSlot } from './backup.rows.js';
import { checkMade, checkQuiet } from './machine-state.js';

/** Backups of machines: what their owners want of them. The region makes them. */
@Injectable()
export class BackupsService {
  constructor(private readonly database: Database) {}

  /** A page of a machine's backups, oldest first. @throws ApiError 404 for the machine */
  list(
    caller: KeyIdentity,
    projectId: string | null,
    vm: string,
    page: PageQuery,
  ): Promise<PageOf<V1Backup>> {
    return this.database.transaction(async (tx) => {
      const vmId = await machineId(tx, caller, projectId, vm);
      const [{ total } = { total: 0 }] = await tx.query<{ total: number }>(
        'select count(*)::int as total from vm_backup where vm_id = $1::uuid',
        [vmId],
      );
      const rows = await tx.query<BackupRow>(
        `select ${backupColumns} from vm_backup b where b.vm_id = $1::uuid order by b.created_at, b.id
         limit $2::int offset $3::int`,
        [vmId, page.limit, page.offset],
      );
      return pageOf(rows.map(backupRecord), total, page);
    }, caller.account_id);
  }

  /** @throws ApiError 404, also for a backup of another machine */
  get(caller: KeyIdentity, projectId: string | null, vm: string, id: string): Promise<V1Backup> {
    return this.database.transaction(async (tx) => {
      const vmId = await machineId(tx, caller, projectId, vm);
      const row = await readBackup(tx, pathId(id));
      if (row?.vm_id !== vmId) throw notFound();
      return backupRecord(row);
    }, caller.account_id);
  }

  /**
   * Asks for a backup; the lifecycle and the region make it. Failed ones of the machine are forgotten.
   * @throws ApiError 404, 409 `vm_not_ready`, `vm_deleting`, `backup_in_progress`, `restore_in_progress`, `no_backup_slot`
   */
  async create(
    caller: KeyIdentity,
    projectId: string | null,
    vm: string,
    body: V1BackupCreate,
    idem: IdempotentRequest | null,
  ): Promise<V1Backup> {
    if (body.name.trim() === '') throw fieldError('name', 'must not be blank');
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const machine = await lockMachine(tx, caller, projectId, vm);
          checkMade(machine);
          await checkQuiet(tx, machine);
          return { status: 201, body: await this.write(tx, caller, machine, body) };
        }),
      caller.account_id,
    );
    return answer.body;
  }

  /** The machine's row is locked: two orders at once cannot take one slot. */
  private async write(
    tx: Sql,
    caller: KeyIdentity,
    machine: VmRow,
    { name, description }: V1BackupCreate,
  ): Promise<V1Backup> {
    const [{ taken } = { taken: 0 }] = await tx.query<{ taken: number }>(
      `select count(*)::int as taken from vm_backup b where b.vm_id = $1::uuid and ${takesSlot}`,
      [machine.id],
    );
    if (taken >= machine.backup_count)
      throw conflict(
        'no_backup_slot',
        machine.backup_count === 0
          ? 'the machine was ordered without backup slots'
          : `all ${machine.backup_count} backup slots of the machine are taken; delete a backup first`,
      );
    await tx.query("delete from vm_backup where vm_id = $1::uuid and phase = 'error'", [machine.id]);
    const id = randomUUID();
    await tx.query(
      `insert into vm_backup (id, account_id, vm_id, region_id, name, description, disk_gb)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5, $6, $7::int)`,
      [id, machine.account_id, machine.id, machine.region_id, name, description ?? null, machine.disk_gb],
    );
    await start(tx, 'backup', id, 'pending');
    await sayAct(tx, caller, 'vms_create_backup', { kind: 'vm', ...machine }, { backup_id: id, name });
    return backupRecord((await readBackup(tx, id))!);
  }

  /**
   * Deletes a backup. One that is made, failed, or that no region has heard of, is gone at once, one under way when its
   * region has confirmed; a repeat changes nothing. Its bytes go within a day.
   * @throws ApiError 404
   */
  delete(caller: KeyIdentity, projectId: string | null, vm: string, id: string): Promise<DeleteAccepted> {
    return this.database.transaction(async (tx) => {
      const machine = await lockMachine(tx, caller, projectId, vm);
      const backup = await lockBackup(tx, machine.id, pathId(id));
      if (!backup) throw notFound();
      if (backup.deleted_at) return { status: 'deleting' };
      const details = { backup_id: backup.id, name: backup.name };
      await sayAct(tx, caller, 'vms_delete_backup', { kind: 'vm', ...machine }, details);
      if (!backup.handed || !['pending', 'creating'].includes(backup.phase)) {
        await tx.query('delete from vm_backup where id = $1::uuid', [backup.id]);
        return { status: 'deleted' };
      }
      await tx.query(
        'update vm_backup set deleted_at = now(), gone = true, generation = generation + 1 where id = $1::uuid',
        [backup.id],
      );
      await wake(tx, 'backup', backup.id);
      return { status: 'deleting' };
    }, caller.account_id);
  }
}

/** @throws ApiError 404 */
export async function lockMachine(
  tx: Sql,
  caller: KeyIdentity,
  projectId: string | null,
  id: string,
): Promise<VmRow> {
  const row = await lockVm(tx, caller.account_id, projectId && pathId(projectId), pathId(id));
  if (!row) throw notFound();
  return row;
}

/** The id of a machine that is there, without locking it. @throws ApiError 404 */
async function machineId(
  tx: Sql,
  caller: KeyIdentity,
  projectId: string | null,
  id: string,
): Promise<string> {
  const [row] = await tx.query<{ id: string }>(
    `select id from vm where id = $1::uuid and account_id = $2::uuid and not unlisted
       and ($3::uuid is null or project_id = $3::uuid)`,
    [pathId(id), caller.account_id, projectId && pathId(projectId)],
  );
  if (!row) throw notFound();
  return row.id;
}
