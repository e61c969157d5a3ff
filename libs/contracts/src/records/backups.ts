import { BoolField, EnumField, IdField, IntField, RecordField, StrField, TimeField } from '../fields.js';
import { V1VMOrder } from './compute.js';

/** Words of `V1Backup.status`. Ends: `ready`, and `error` with a reason in `error`. */
export const backupStatuses = ['pending', 'creating', 'ready', 'error', 'deleting'] as const;
export type BackupStatus = (typeof backupStatuses)[number];

/** A backup of a machine: its disk at one moment. */
export class V1Backup {
  @StrField()
  id!: string;
  @StrField()
  vm_id!: string;
  @StrField()
  name!: string;
  @StrField({
    description:
      'pending, creating, ready, error or deleting. One in error takes no slot and is forgotten with the next order',
  })
  status!: string;
  @StrField({ description: 'manual: somebody asked for it' })
  type!: string;
  @StrField({ nullable: true, optional: true })
  description!: string | null;
  @StrField({ nullable: true, optional: true, description: 'Why it could not be made' })
  error!: string | null;
  @StrField({
    nullable: true,
    optional: true,
    description: 'Always null: each backup is whole and needs no other',
  })
  parent_backup_id!: string | null;
  @IntField({
    nullable: true,
    optional: true,
    description: 'What it takes, compressed; null until it is ready',
  })
  size_bytes!: number | null;
  @IntField({ description: 'GB; the least disk of a machine that is restored from it' })
  disk_size!: number;
  @StrField({
    nullable: true,
    optional: true,
    description:
      'frozen: the guest agent held its file systems still; crash: as after a power cut; stopped: the machine did not run',
  })
  consistency!: string | null;
  @TimeField({ declared: true })
  created_at!: string;
  @BoolField({
    nullable: true,
    optional: true,
    description: 'Whether a region that only simulates machines made it; null until it is ready',
  })
  simulated!: boolean | null;
}

/** Body to make a backup. */
export class V1BackupCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({ nullable: true, optional: true, max: 2_000 })
  description?: string | null;
}

/**
 * The machine that a backup is restored into, ordered and paid like any other; in the project and the region of the machine
 * that the backup is of. What is left out is as that machine has it.
 */
export class V1BackupRestoreVM extends V1VMOrder {
  @StrField({
    nullable: true,
    optional: true,
    min: 1,
    max: 63,
    pattern: /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/,
    rule: 'must be lower-case letters, digits and hyphens',
  })
  hostname?: string | null;
  @IdField({ nullable: true, optional: true })
  vm_plan_id?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    min: 1,
    max: 32,
    pattern: /^[a-z_][a-z0-9_-]*$/,
    rule: 'must be a login name: lower-case letters, digits, _ and -, not beginning with a digit',
  })
  default_user?: string | null;
}

/** Body to restore a backup. */
export class V1BackupRestore {
  @EnumField(['vm', 'new'], {
    description:
      'vm: the disk of the machine itself is replaced, and what was written since the backup is lost; the machine is stopped, and started again if it ran. new: another machine is made of it',
  })
  target!: string;
  @RecordField(() => V1BackupRestoreVM, { optional: true, description: 'With target new, and only then' })
  vm?: V1BackupRestoreVM;
}
