import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentLog } from '../../agent-log.js';
import { diskUsed } from '../../system/disk.js';
import { type Trash } from '../../system/trash.js';

/** What the caches of one host may take, bytes. */
export interface CacheLimits {
  /** Of one app. */
  appBytes: number;
  /** Of all apps together. */
  totalBytes: number;
}

export const defaultCacheLimits: Readonly<CacheLimits> = {
  appBytes: 1024 ** 3,
  totalBytes: 10 * 1024 ** 3,
};

/** One part of an app's cache: what one tool keeps, or what an install step has made. */
export interface CachePart {
  bytes: number;
  /** Of what is installed: what it depends on. Null: a tool's own cache, which looks itself. */
  key: string | null;
  /** Where folders of it belong in the tree, in the order of their numbers. */
  folders: string[];
}

/** The note beside an app's cache. A folder without one is not the cache's, or not whole. */
interface Note {
  label: typeof label;
  account_id: string;
  app_id: string;
  /** Folder of the parts. */
  data: string;
  parts: Record<string, CachePart>;
  /** Milliseconds since 1970: for what goes first. */
  used_at: number;
}

/** Only what carries it is ever removed. */
const label = 'nebo-build-cache';
const appFolder = /^[0-9a-f]{32}$/;
const dataFolder = /^data-[0-9a-f]{16}$/;

/** Whose cache. */
export interface CacheOwner {
  account_id: string;
  app_id: string;
}

/** What a finished build leaves. */
export interface Staged {
  /** Folder with a folder for every part, on the same file system; it becomes the cache. */
  dir: string;
  parts: Record<string, Omit<CachePart, 'bytes'>>;
  /** Parts that stay as they are. */
  keep: readonly string[];
}

/** What became of it. */
export interface Kept {
  /** Of all parts. */
  bytes: number;
  parts: Record<string, number>;
  /** Parts that did not fit. */
  dropped: string[];
}

/** What others may do with the caches. */
export interface BuildCaches {
  /** Whose caches there are, and how large. */
  list(): Promise<(CacheOwner & { bytes: number; used_at: number })[]>;
  /** Removes an app's cache; one that is not there is fine. */
  remove(owner: CacheOwner): Promise<void>;
}

/**
 * Caches of builds, one per app, never shared: what a build has left can only come to builds of the same app. A build works
 * on a copy; the copy of one that succeeded becomes the cache by a rename, and the note that names it is written last.
 */
export class BuildCache implements BuildCaches {
  private readonly turns = new Map<string, Promise<unknown>>();

  constructor(
    private readonly dir: string,
    private readonly limits: CacheLimits,
    private readonly trash: Trash,
    private readonly log: AgentLog,
  ) {}

  /** Removes what an agent that was killed has left half-made. */
  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    await chmod(this.dir, 0o700);
    for (const name of await this.names()) {
      const note = await this.note(name);
      for (const entry of await readdir(join(this.dir, name)))
        if (dataFolder.test(entry) && entry !== note?.data)
          await this.trash.take(join(this.dir, name, entry));
    }
  }

  /**
   * An app's parts, for reading: they stay while `work` runs.
   * @param work is given the folder of the parts; null: the app has no cache
   */
  use<T>(
    owner: CacheOwner,
    work: (dir: string | null, parts: Readonly<Record<string, CachePart>>) => Promise<T>,
  ): Promise<T> {
    const name = folderOf(owner);
    return this.inTurn(name, async () => {
      const note = await this.note(name);
      if (note === null) return work(null, {});
      await this.write(name, { ...note, used_at: Date.now() });
      return work(join(this.dir, name, note.data), note.parts);
    });
  }

  /** Makes what a build has left the app's cache, as far as it fits. */
  commit(owner: CacheOwner, staged: Staged): Promise<Kept> {
    const name = folderOf(owner);
    return this.inTurn(name, async () => {
      const home = join(this.dir, name);
      await mkdir(home, { recursive: true, mode: 0o700 });
      const before = await this.note(name);
      const data = `data-${randomBytes(8).toString('hex')}`;
      // Nobody but the agent enters it: what lies there belongs to users of runs that are over.
      await chmod(staged.dir, 0o700);
      const parts: Record<string, CachePart> = {};
      for (const [part, facts] of Object.entries(staged.parts))
        parts[part] = { ...facts, bytes: await diskUsed(join(staged.dir, part)) };
      for (const part of staged.keep) {
        const kept = before?.parts[part];
        if (!before || !kept || parts[part]) continue;
        await rename(join(home, before.data, part), join(staged.dir, part));
        parts[part] = kept;
      }
      const dropped = await this.fit(staged.dir, parts);
      await rename(staged.dir, join(home, data));
      await this.write(name, {
        ...{ label, account_id: owner.account_id, app_id: owner.app_id, data, parts, used_at: Date.now() },
      });
      if (before) await this.trash.take(join(home, before.data));
      const sizes = Object.fromEntries(Object.entries(parts).map(([part, { bytes }]) => [part, bytes]));
      await this.shrink(name);
      return { bytes: sum(parts), parts: sizes, dropped };
    });
  }

  remove(owner: CacheOwner): Promise<void> {
    const name = folderOf(owner);
    return this.inTurn(name, () => this.forget(name));
  }

  async list(): Promise<(CacheOwner & { bytes: number; used_at: number })[]> {
    const found: (CacheOwner & { bytes: number; used_at: number })[] = [];
    for (const name of await this.names()) {
      const note = await this.note(name);
      if (!note) continue;
      const { account_id, app_id, used_at, parts } = note;
      found.push({ account_id, app_id, used_at, bytes: sum(parts) });
    }
    return found;
  }

  /** The largest parts go first until an app keeps its quota: the others still help. */
  private async fit(dir: string, parts: Record<string, CachePart>): Promise<string[]> {
    const dropped: string[] = [];
    while (sum(parts) > this.limits.appBytes) {
      const [largest] = Object.entries(parts).sort(([, a], [, b]) => b.bytes - a.bytes);
      await this.trash.take(join(dir, largest![0]));
      delete parts[largest![0]];
      dropped.push(largest![0]);
    }
    return dropped;
  }

  /** The longest unused caches of other apps go until the host keeps its quota. */
  private async shrink(present: string): Promise<void> {
    const notes: { name: string; note: Note }[] = [];
    for (const name of await this.names()) {
      const note = await this.note(name);
      if (note) notes.push({ name, note });
    }
    let total = notes.reduce((all, { note }) => all + sum(note.parts), 0);
    notes.sort((a, b) => a.note.used_at - b.note.used_at);
    for (const { name, note } of notes) {
      if (total <= this.limits.totalBytes) return;
      // One that a build reads right now is not waited for: the next commit looks again.
      if (name === present || this.turns.has(name)) continue;
      await this.forget(name);
      total -= sum(note.parts);
      this.log.info({ app: note.app_id, bytes: sum(note.parts) }, 'a build cache went for want of room');
    }
  }

  private async forget(name: string): Promise<void> {
    const note = await this.note(name);
    if (!note) return;
    // The note first: without it nothing of the folder is taken for a cache.
    await rm(this.noteFile(name), { force: true });
    await this.trash.take(join(this.dir, name));
  }

  private async names(): Promise<string[]> {
    return (await readdir(this.dir)).filter((name) => appFolder.test(name));
  }

  private noteFile(name: string): string {
    return join(this.dir, name, 'note.json');
  }

  private async note(name: string): Promise<Note | null> {
    try {
      const note = JSON.parse(await readFile(this.noteFile(name), 'utf8')) as Note;
      return note.label === label && dataFolder.test(note.data) ? note : null;
    } catch {
      return null;
    }
  }

  private async write(name: string, note: Note): Promise<void> {
    const file = this.noteFile(name);
    await writeFile(`${file}.new`, JSON.stringify(note), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  private inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(name) ?? Promise.resolve()).then(work);
    const settled = turn.catch(() => undefined);
    this.turns.set(name, settled);
    void settled.then(() => {
      if (this.turns.get(name) === settled) this.turns.delete(name);
    });
    return turn;
  }
}

const sum = (parts: Readonly<Record<string, { bytes: number }>>): number =>
  Object.values(parts).reduce((all, { bytes }) => all + bytes, 0);

const folderOf = ({ account_id, app_id }: CacheOwner): string =>
  createHash('sha256').update(`${account_id}\0${app_id}`).digest('hex').slice(0, 32);
