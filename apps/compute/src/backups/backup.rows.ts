import type { BackupFacts, BackupState } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';

/** Where a backup's life stands; the states of `backup.lifecycle.ts`. */
export type BackupPhase = 'pending' | 'creating' | 'ready' | 'failing' | 'error' | 'deleting' | 'forgetting';

/** A backup of a machine. */
export interface BackupRow {
  id: string;
  account_id: string;
  vm_id: string;
  region_id: string;
  name: string;
  description: string | null;
  disk_gb: number;
  phase: BackupPhase;
  reason: string | null;
  deleted_at: Date | null;
  handed: boolean;
  gone: boolean;
  generation: number;
  observed_generation: number | null;
  observed_state: BackupState | null;
  observed_reason: string | null;
  observed_facts: BackupFacts | null;
  sha256: string | null;
  bytes: number | null;
  consistency: string | null;
  simulated: boolean | null;
  created_at: Date;
}

/** The columns of `BackupRow`, from `vm_backup b`. */
export const backupColumns = `b.id, b.account_id, b.vm_id, b.region_id, b.name, b.description, b.disk_gb, b.phase, b.reason,
  b.deleted_at, b.handed, b.gone, b.generation, b.observed_generation, b.observed_state, b.observed_reason, b.observed_facts,
  b.sha256, b.bytes::float8 as bytes, b.consistency, b.simulated, b.created_at`;

/** SQL: it is being made, or its end in the region is awaited. One machine has at most one of these. */
export const underWay =
  "(b.phase in ('pending', 'creating', 'deleting') or (b.deleted_at is not null and b.gone))";

/** SQL: it takes one of its machine's slots. */
export const takesSlot = "(b.deleted_at is null and b.phase in ('pending', 'creating', 'ready'))";

export async function readBackup(tx: Sql, id: string): Promise<BackupRow | null> {
  const [row] = await tx.query<BackupRow>(`select ${backupColumns} from vm_backup b where b.id = $1::uuid`, [
    id,
  ]);
  return row ?? null;
}

/**
 * A machine's backup, locked until the transaction ends.
 * @param mode `share`: it is only kept from going
 */
export async function lockBackup(
  tx: Sql,
  vmId: string,
  id: string,
  mode: 'update' | 'share' = 'update',
): Promise<BackupRow | null> {
  const [row] = await tx.query<BackupRow>(
    `select ${backupColumns} from vm_backup b where b.id = $1::uuid and b.vm_id = $2::uuid for ${mode} of b`,
    [id, vmId],
  );
  return row ?? null;
}

/** The machine is being deleted: so are its backups. What the region is making it is told to drop. */
export async function deleteBackupsOf(tx: Sql, vmId: string): Promise<void> {
  const rows = await tx.query<{ id: string }>(
    `update vm_backup set deleted_at = now(), gone = true, generation = generation + 1
     where vm_id = $1::uuid and deleted_at is null and phase in ('pending', 'creating') returning id`,
    [vmId],
  );
  for (const { id } of rows) await wake(tx, 'backup', id);
  await tx.query("delete from vm_backup where vm_id = $1::uuid and phase in ('ready', 'error')", [vmId]);
}
