import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type BackupFacts, type BackupState, type BlobRef, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { ControlPlaneError } from '../control/control-plane.js';
import { type MachineDriver, MachineFault } from '../drivers/machine-driver.js';
import { type BlobAccess } from '../drivers/types.js';
import { Backoff, ignoreAbort, type Places, sleep } from '../system/timing.js';
import { type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

export interface BackupParts {
  driver: MachineDriver;
  blobs: BlobAccess;
  reporter: Reporter;
  log: AgentLog;
  /** How many are made at a time. */
  places: Places;
  /** Folder of the files on their way, emptied when the agent starts. */
  dir: string;
  /** Bytes that backups leave free on the file system of `dir`; default 1 GiB. */
  reserveBytes?: number;
}

type WantedBackup = Extract<Wanted, { kind: 'backup' }>;
type Ending = { state: 'ready' | 'failed'; reason: string | null; facts: Partial<BackupFacts> };

/** How often what the host's tools refused is tried again before the backup counts as failed. */
const tries = 3;
const noRoom = 'The region has no room for this backup at the moment. Try again later.';

/**
 * One backup: has the driver write it to a scratch file, puts the file into the blob store, reports its hash. It is made once
 * and its end is final. After a `kill -9` of the agent it begins again: nobody was told of what the killed one had made.
 */
export class BackupWorker implements Worker {
  private newest: WantedBackup | null = null;
  private ending: Ending | null = null;
  private readonly end = new AbortController();
  private work: Promise<void> | null = null;

  constructor(
    private readonly id: string,
    private readonly parts: BackupParts,
  ) {}

  want(item: Wanted): void {
    if (item.kind !== 'backup') return;
    if (this.newest && item.generation < this.newest.generation) return;
    const again = item.generation === this.newest?.generation;
    this.newest = item;
    if (item.gone) void this.leave();
    else if (this.ending && !again) this.say(this.ending.state, this.ending.reason, this.ending.facts);
    else this.work ??= this.make(item);
  }

  async vanished(): Promise<void> {
    await this.stop();
  }

  /** Ends what runs; no scratch file is left. */
  async stop(): Promise<void> {
    this.end.abort();
    await this.work;
  }

  private async leave(): Promise<void> {
    await this.stop();
    this.say('gone', null, {}, true);
  }

  private async make({ spec }: WantedBackup): Promise<void> {
    const { signal } = this.end;
    const { places, log, driver } = this.parts;
    this.say('creating', null, {});
    const path = join(
      this.parts.dir,
      `${createHash('sha256').update(this.id).digest('hex').slice(0, 32)}.qcow2`,
    );
    try {
      const facts = await places.run(async () => {
        const consistency = await this.write(spec.vm_id, path, signal);
        const blob = await blobOf(path, signal);
        await this.put(blob, path, signal);
        return { driver: driver.name, real: driver.real, blob, consistency };
      }, signal);
      this.finish({ state: 'ready', reason: null, facts });
    } catch (error) {
      if (signal.aborted) return;
      log.error({ backup: this.id, error: String((error as Error)?.stack ?? error) }, 'backup was not made');
      const reason =
        error instanceof MachineFault ? error.message : 'The region could not make this backup. Try again.';
      this.finish({ state: 'failed', reason, facts: { driver: driver.name, real: driver.real } });
    } finally {
      await rm(path, { force: true });
    }
  }

  private finish(ending: Ending): void {
    this.ending = ending;
    this.say(ending.state, ending.reason, ending.facts);
  }

  /** @throws MachineFault, or what the host's tools threw the last time */
  private async write(vmId: string, path: string, signal: AbortSignal): Promise<BackupFacts['consistency']> {
    const backoff = new Backoff(500, 5_000);
    for (let attempt = 1; ; attempt += 1) {
      const watch = new AbortController();
      const room = this.watchRoom(watch);
      try {
        await mkdir(this.parts.dir, { recursive: true, mode: 0o700 });
        return await this.parts.driver.backup(vmId, path, AbortSignal.any([signal, watch.signal]));
      } catch (error) {
        signal.throwIfAborted();
        if (watch.signal.aborted) throw new MachineFault(noRoom);
        if (error instanceof MachineFault || attempt >= tries) throw error;
        this.parts.log.warn({ backup: this.id, attempt, error: String(error) }, 'backup is tried again');
        await sleep(backoff.next(), signal);
      } finally {
        room.end();
        await room.done;
      }
    }
  }

  /** Other disks of this host must not run full for a backup. */
  private watchRoom(full: AbortController): { end(): void; done: Promise<void> } {
    const over = new AbortController();
    const look = async () => {
      while (!over.signal.aborted) {
        const { bavail, bsize } = await statfs(this.parts.dir).catch(() => ({ bavail: 1, bsize: Infinity }));
        if (bavail * bsize < (this.parts.reserveBytes ?? 1024 ** 3)) full.abort();
        await sleep(500, over.signal).catch(ignoreAbort);
      }
    };
    return { end: () => over.abort(), done: look() };
  }

  /** A control plane that is away gets it when it is back; what it refuses about the bytes is an end. */
  private async put(blob: BlobRef, path: string, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(500, 30_000);
    for (;;) {
      try {
        return await this.parts.blobs.put(blob, () => createReadStream(path), signal);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof ControlPlaneError && [400, 413, 422].includes(error.status)) throw error;
        this.parts.log.warn({ backup: this.id, error: String(error) }, 'backup will be sent again');
        await sleep(backoff.next(), signal);
      }
    }
  }

  private say(state: BackupState, reason: string | null, facts: Partial<BackupFacts>, last = false): void {
    const { generation } = this.newest!;
    this.parts.reporter.report(
      { kind: 'backup', id: this.id, generation, state, reason, facts: { ...facts } },
      last,
    );
  }
}

async function blobOf(path: string, signal: AbortSignal): Promise<BlobRef> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash, { signal });
  return { sha256: hash.digest('hex'), bytes: (await stat(path)).size };
}
