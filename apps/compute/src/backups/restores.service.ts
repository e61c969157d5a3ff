import { Injectable } from '@nestjs/common';
import {
  decide,
  type KeyIdentity,
  V1BackupRestore,
  type V1BackupRestoreVM,
  type V1VM,
  type V1VMCreate,
} from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  forbidden,
  type IdempotentRequest,
  notFound,
  once,
  pathId,
  readBody,
  repeatOf,
} from '@nebo/service-kit';
import { CatalogueService } from '../catalogue/catalogue.service.js';
import { sayAct } from '../events.js';
import { VmOrdersService } from '../vms/vm-orders.service.js';
import { vmRecord } from '../vms/vm.mapper.js';
import { readVm, type VmRow } from '../vms/vm.rows.js';
import { backupStatus } from './backup.mapper.js';
import { type BackupRow, lockBackup } from './backup.rows.js';
import { BackupsService, lockMachine } from './backups.service.js';
import { checkMade, checkQuiet } from './machine-state.js';

/** Restores: a machine's disk is made of a backup's bytes, which the machine's row holds until that is done. */
@Injectable()
export class RestoresService {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly orders: VmOrdersService,
    private readonly backups: BackupsService,
  ) {}

  /**
   * Restores a backup into its machine, whose disk is replaced, or into a new machine, which is ordered like any other.
   * @param raw the body, not yet checked: 404 for the ids comes first
   * @returns the machine that it is restored into
   * @throws ApiError 404, 409 `backup_not_ready`; into the machine also `vm_deleting`, `vm_not_ready`, `disk_too_small`,
   *   `restore_in_progress`, `backup_in_progress`; into a new one 403 without vm:create and whatever an order is refused with
   */
  async restore(
    caller: KeyIdentity,
    projectId: string | null,
    vm: string,
    id: string,
    raw: unknown,
    idem: IdempotentRequest | null,
  ): Promise<V1VM> {
    // Also when the backup is gone by now.
    const repeat = await repeatOf<V1VM>(this.database, caller.account_id, idem);
    if (repeat) return repeat.body;
    await this.backups.get(caller, projectId, vm, id);
    const body = await readBody(V1BackupRestore, raw);
    if (body.target === 'new') {
      if (!body.vm) throw fieldError('vm', 'is needed with target new', 'missing');
      return this.intoNew(caller, projectId, vm, id, body.vm, idem);
    }
    if (body.vm) throw fieldError('vm', 'belongs to target new');
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const machine = await lockMachine(tx, caller, projectId, vm);
          const backup = await keptBackup(tx, machine, id);
          checkReady(backup);
          return { status: 202, body: await this.intoItself(tx, caller, machine, backup) };
        }),
      caller.account_id,
    );
    return answer.body;
  }

  private async intoItself(tx: Sql, caller: KeyIdentity, machine: VmRow, backup: BackupRow): Promise<V1VM> {
    checkMade(machine);
    await checkQuiet(tx, machine);
    if (backup.disk_gb > machine.disk_gb)
      throw conflict('disk_too_small', `the backup needs a disk of ${backup.disk_gb} GB`);
    await tx.query(
      `update vm set restore_number = restore_number + 1, restore_sha256 = $2, restore_bytes = $3::bigint,
         generation = generation + 1, power_generation = generation + 1, updated_at = now() where id = $1::uuid`,
      [machine.id, backup.sha256, backup.bytes],
    );
    await wake(tx, 'vm', machine.id);
    await sayAct(tx, caller, 'vms_restore_backup', { kind: 'vm', ...machine }, named(backup));
    return vmRecord((await readVm(tx, machine.id))!);
  }

  private async intoNew(
    caller: KeyIdentity,
    projectId: string | null,
    vm: string,
    id: string,
    body: V1BackupRestoreVM,
    idem: IdempotentRequest | null,
  ): Promise<V1VM> {
    const { machine, backup, default_user } = await this.database.transaction(async (tx) => {
      const machine = await lockMachine(tx, caller, projectId, vm);
      const backup = await keptBackup(tx, machine, id);
      const project = { kind: 'project', id: machine.project_id, project_id: machine.project_id };
      // The resource of a create is its parent (interfaces.md, 3); the gateway has asked for the machine only.
      if (!decide(caller, 'vm:create', project)) throw forbidden('vm:create');
      checkReady(backup);
      const [row] = await tx.query<{ default_user: string }>(
        'select default_user from vm where id = $1::uuid',
        [machine.id],
      );
      return { machine, backup, default_user: row!.default_user };
    }, caller.account_id);
    const plan = await this.catalogue.plan(body.vm_plan_id ?? machine.plan_id);
    const image = await this.catalogue.imageOf(machine.image_id);
    const order: V1VMCreate = {
      ...body,
      hostname: body.hostname ?? machine.hostname,
      default_user: body.default_user ?? default_user,
      image_id: image.id,
      vm_plan_id: plan.id,
      cluster_id: machine.region_id,
      disk_size_gb: body.disk_size_gb ?? Math.max(plan.disk_gb, backup.disk_gb),
    };
    const answer = await this.orders.create(caller, machine.project_id, order, idem, {
      image: { ...image, min_disk_gb: Math.max(image.min_disk_gb, backup.disk_gb) },
      take: async (tx, vmId) => {
        const kept = await keptBackup(tx, machine, id);
        checkReady(kept);
        await tx.query(
          `update vm set restore_number = 1, restore_sha256 = $2, restore_bytes = $3::bigint where id = $1::uuid`,
          [vmId, kept.sha256, kept.bytes],
        );
        const details = { ...named(kept), vm_id: vmId };
        await sayAct(tx, caller, 'vms_restore_backup', { kind: 'vm', ...machine }, details);
      },
    });
    return answer.body;
  }
}

/** A backup that stays until the transaction ends. @throws ApiError 404 */
async function keptBackup(tx: Sql, machine: VmRow, id: string): Promise<BackupRow> {
  const backup = await lockBackup(tx, machine.id, pathId(id), 'share');
  if (!backup) throw notFound();
  return backup;
}

/** Its bytes are there. @throws ApiError 409 `backup_not_ready` */
function checkReady(backup: BackupRow): void {
  const status = backupStatus(backup);
  if (status !== 'ready') throw conflict('backup_not_ready', `the backup is ${status}`);
}

const named = ({ id, name }: BackupRow) => ({ backup_id: id, name });
