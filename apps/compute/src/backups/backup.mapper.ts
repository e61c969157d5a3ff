import type { BackupStatus, V1Backup } from '@nebo/contracts';
import type { BackupRow } from './backup.rows.js';

/** Ends at which nobody waits any longer for another word. */
export const finalBackupStatuses: readonly string[] = ['ready', 'error', 'deleting'] satisfies BackupStatus[];

/** The status word of a backup. */
export function backupStatus({ phase, deleted_at }: Pick<BackupRow, 'phase' | 'deleted_at'>): BackupStatus {
  if (deleted_at !== null) return 'deleting';
  switch (phase) {
    case 'pending':
    case 'creating':
    case 'ready':
      return phase;
    default:
      return 'error';
  }
}

/** A backup as the contract shows it. */
export function backupRecord(row: BackupRow): V1Backup {
  const status = backupStatus(row);
  return {
    id: row.id,
    vm_id: row.vm_id,
    name: row.name,
    status,
    type: 'manual',
    description: row.description,
    error: status === 'error' ? (row.reason ?? 'the backup could not be made') : null,
    parent_backup_id: null,
    size_bytes: row.bytes,
    disk_size: row.disk_gb,
    consistency: row.consistency,
    created_at: row.created_at.toISOString(),
    simulated: row.simulated,
  };
}
