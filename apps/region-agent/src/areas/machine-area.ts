import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentKind } from '@nebo/contracts';
import { BackupWorker } from '../reconcile/backup-worker.js';
import { MachineWorker } from '../reconcile/machine-worker.js';
import { type Worker } from '../reconcile/worker.js';
import { Places } from '../system/timing.js';
import { Area, type AreaParts } from './area.js';

/** Machines and their backups. */
export class MachineArea extends Area {
  readonly service = 'compute';
  private readonly places: Places;
  /** Where backups are written before they are stored. */
  private readonly dir: string;

  constructor(parts: AreaParts & { backups: number }) {
    super(parts);
    this.places = new Places(parts.backups);
    this.dir = join(parts.home, 'backups');
  }

  /** What an earlier agent had half written is of no use. */
  override start(): Promise<void> {
    return rm(this.dir, { recursive: true, force: true });
  }

  protected override clear(listed: ReadonlySet<string>): Promise<void> {
    return this.removeStrays('vm', listed, this.parts.drivers().machines);
  }

  protected override makeWorker(kind: AgentKind, id: string): Worker | null {
    const { machines: driver } = this.parts.drivers();
    const { blobs, reporter, places, dir } = this;
    const parts = { driver, blobs, reporter, log: this.parts.log };
    if (kind === 'vm') return new MachineWorker(id, parts);
    if (kind === 'backup') return new BackupWorker(id, { ...parts, places, dir });
    return null;
  }
}
