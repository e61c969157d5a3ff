import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { deleteBackupsOf } from '../backups/backup.rows.js';
import type { VmRow } from './vm.rows.js';
import { endSpan } from './vm-span.rows.js';

/**
 * Asks for the end of a machine that is locked, from any state, with its backups: what it costs by time ends now, the rest is
 * its lifecycle's.
 * @returns whether no region has heard of it, so that for its owner it is gone at once
 */
export async function removeVm(tx: Sql, { id, handed }: Pick<VmRow, 'id' | 'handed'>): Promise<boolean> {
  await tx.query(
    `update vm set deleted_at = now(), unlisted = $2::boolean, gone = gone or admitted,
       generation = generation + (admitted and not gone)::int, updated_at = now() where id = $1::uuid`,
    [id, !handed],
  );
  await deleteBackupsOf(tx, id);
  await endSpan(tx, id);
  await wake(tx, 'vm', id);
  return !handed;
}
