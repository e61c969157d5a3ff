import { Injectable } from '@nestjs/common';
import type { BackupFacts } from '@nebo/contracts';
import { type Change, hours, Lifecycle, minutes, type Outcome, State } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { Blobs } from '../blobs/blobs.js';
import { type BackupRow, readBackup } from './backup.rows.js';

/**
 * Life of a backup: pending → creating → ready, or → failing → error; from the first two also deleting → forgetting → end.
 * The region makes it once and puts its bytes into the blob store before it says so; what is ready or in error nobody has
 * anything of, so its deletion is the end of its row, which ends its life too.
 */
@Injectable()
export class BackupLifecycle extends Lifecycle<BackupRow> {
  override readonly kind = 'backup';

  constructor(private readonly blobs: Blobs) {
    super();
  }

  override load(tx: Sql, id: string): Promise<BackupRow | null> {
    return readBackup(tx, id);
  }

  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    if (to === null) return;
    await tx.query(
      `update vm_backup set phase = $2, reason = coalesce($3, case when $2 = 'error' then reason end)
       where id = $1::uuid`,
      [id, to, reason],
    );
  }

  @State({ deadline: minutes(20), onMissed: 'failing' })
  pending(backup: BackupRow): Outcome {
    if (backup.deleted_at) return this.go('deleting');
    return seen(backup) === null ? this.wait(Infinity, 'no region has begun it') : this.go('creating');
  }

  @State({ deadline: hours(6), onMissed: 'failing' })
  async creating(backup: BackupRow): Promise<Outcome> {
    if (backup.deleted_at) return this.go('deleting');
    switch (seen(backup)) {
      case 'ready':
        return this.arrived(backup, backup.observed_facts!);
      case 'failed':
        return this.fail(
          backup.observed_reason ?? 'The region could not make it and did not say why.',
          'error',
        );
      case 'gone':
        return this.fail('The region lost it while it was made. Make another one.', 'error');
      default:
        return this.wait(Infinity, 'the region has not finished it');
    }
  }

  private async arrived(
    { id, vm_id }: BackupRow,
    { blob, consistency, real }: BackupFacts,
  ): Promise<Outcome> {
    if ((await this.blobs.store.has(blob.sha256)) !== blob.bytes)
      return this.fail('Its bytes did not arrive from the region. Make another one.', 'error');
    return this.go('ready', async (tx) => {
      await holdMachine(tx, vm_id);
      await this.blobs.note(tx, blob);
      await tx.query(
        `update vm_backup b set sha256 = $2, bytes = $3::bigint, consistency = $4, simulated = $5::boolean,
           -- The disk may have grown since it was asked for.
           disk_gb = greatest(b.disk_gb, v.disk_gb)
         from vm v where b.id = $1::uuid and v.id = b.vm_id`,
        [id, blob.sha256, blob.bytes, consistency, !real],
      );
    });
  }

  @State()
  ready(backup: BackupRow): Outcome {
    // Asked for while the region's last word was taken in.
    return backup.deleted_at ? this.go('deleting') : this.wait();
  }

  /** The region is too late: it is told to drop it. */
  @State()
  failing({ id, vm_id }: BackupRow): Outcome {
    return this.go('error', async (tx) => {
      await holdMachine(tx, vm_id);
      await tx.query(
        'update vm_backup set gone = true, generation = generation + 1 where id = $1::uuid and not gone',
        [id],
      );
    });
  }

  @State()
  error(backup: BackupRow): Outcome {
    return backup.deleted_at ? this.go('deleting') : this.wait();
  }

  /** A region that does not answer holds up nobody: what it still makes ends as bytes that no row owns. */
  @State({ deadline: minutes(5), onMissed: 'forgetting' })
  deleting(backup: BackupRow): Outcome {
    const confirmed =
      !backup.handed ||
      (backup.observed_state === 'gone' && (backup.observed_generation ?? 0) >= backup.generation);
    return confirmed ? this.go('forgetting') : this.wait(Infinity, 'the region has not confirmed the end');
  }

  @State()
  forgetting({ id }: BackupRow): Outcome {
    return this.end((tx) => tx.query('delete from vm_backup where id = $1::uuid', [id]));
  }
}

/**
 * The machine first, as its owner's requests do: a row that is changed twice in a transaction has its reference to the machine
 * checked, which waits for whoever holds the machine and in turn wants the backup.
 */
const holdMachine = (tx: Sql, vmId: string) =>
  tx.query('select 1 as held from vm where id = $1::uuid for key share', [vmId]);

/** What the region says of the present generation. */
const seen = ({ observed_generation, generation, observed_state }: BackupRow) =>
  observed_generation === generation ? observed_state : null;
