import type { Sql } from '@nebo/persistence';
import { conflict } from '@nebo/service-kit';
import { statusOf } from '../vms/vm.mapper.js';
import type { VmRow } from '../vms/vm.rows.js';
import { underWay } from './backup.rows.js';

/** The machine has a disk. @throws ApiError 409 `vm_deleting`, `vm_not_ready` */
export function checkMade(vm: VmRow): void {
  const status = statusOf(vm);
  if (status === 'deleting') throw conflict('vm_deleting', 'the machine is being deleted');
  if (vm.provisioned_at === null || status === 'error')
    throw conflict('vm_not_ready', `the machine is ${status}; it has not been made`);
}

/**
 * Nothing else is being done with the machine's disk; its row is locked.
 * @throws ApiError 409 `restore_in_progress`, `backup_in_progress`
 */
export async function checkQuiet(tx: Sql, vm: VmRow): Promise<void> {
  if (statusOf(vm) === 'restoring')
    throw conflict('restore_in_progress', 'the machine is being restored; wait until that is done');
  const [busy] = await tx.query(
    `select 1 as busy from vm_backup b where b.vm_id = $1::uuid and ${underWay}`,
    [vm.id],
  );
  if (busy) throw conflict('backup_in_progress', 'a backup of the machine is just being made or called off');
}
