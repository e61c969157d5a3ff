import { chmod, lchown, link, lstat, mkdir, open, readdir, readlink, rm, symlink } from 'node:fs/promises';
import { type Stats } from 'node:fs';
import { join } from 'node:path';
import { type LayerEntry, layerPath, LayerRefused } from './layer-tar.js';

/** Links that are followed on one way, as the kernel does. */
const maxLinks = 40;
const maxSteps = 4_096;
const whiteout = '.wh.';
const opaque = '.wh..wh..opq';

/** What a tree may hold in all its layers. */
export interface TreeLimits {
  entries: number;
}

/**
 * The root file system of an image on this host, made layer by layer. Nobody else changes it meanwhile. Every part of a way is
 * looked at before it is gone, and a link leads on from the tree's own root: nothing is ever read, written or removed outside.
 * All belongs to `gid`, which gets the owner's rights, so that a process of that group can do what the image's users could.
 */
export class RootTree {
  private entries = 0;
  /** Real folders of the tree by their path. */
  private readonly folders = new Set<string>(['']);
  /** Where ways that were gone before end. */
  private readonly ways = new Map<string, string>();
  /** What the present layer has made; whiteouts are about what came before. */
  private mine = new Set<string>();

  constructor(
    private readonly root: string,
    private readonly limits: TreeLimits,
    /** Null: whoever runs this, for tests without root's rights. */
    private readonly gid: number | null,
  ) {}

  /** The next entries are those of another layer. */
  beginLayer(): void {
    this.mine = new Set();
  }

  /** Applies one entry. @throws LayerRefused, or the file system's error */
  async apply(entry: LayerEntry): Promise<void> {
    const { segments, type } = entry;
    const name = segments.at(-1);
    if (name === undefined) return;
    this.count();
    if (name.startsWith(whiteout)) return this.remove(segments.slice(0, -1), name, segments);
    if (type === 'other') return;
    const parent = await this.walk(segments.slice(0, -1), true, segments);
    const path = at(parent!, name);
    const full = join(this.root, path);
    const there = await statOf(full);
    this.note(path);
    if (type === 'directory') return this.folder(path, there, entry.mode);
    if (type === 'hardlink') return this.hardlink(entry, path, there);
    if (there) await this.drop(path, there);
    if (type === 'symlink') {
      if (entry.target === '' || Buffer.byteLength(entry.target) > maxSteps || entry.target.includes('\0'))
        throw new LayerRefused('is a link without a usable target.', segments.join('/'));
      await symlink(entry.target, full);
      if (this.gid !== null) await lchown(full, 0, this.gid);
      return;
    }
    await this.file(full, entry);
  }

  /**
   * The real place of a file of the image, its links followed inside the tree; null: there is none.
   * @param path absolute inside the image
   */
  async find(path: string): Promise<{ path: string; info: Stats } | null> {
    try {
      let segments = layerPath(path);
      for (let links = 0; links < maxLinks; links += 1) {
        const name = segments.at(-1);
        if (name === undefined) return null;
        const parent = await this.walk(segments.slice(0, -1), false, segments);
        if (parent === null) return null;
        const full = join(this.root, at(parent, name));
        const info = await statOf(full);
        if (!info?.isSymbolicLink()) return info && { path: full, info };
        const target = await readlink(full);
        segments = clean(target.startsWith('/') ? target : `${parent}/${target}`);
      }
    } catch (error) {
      if (!(error instanceof LayerRefused)) throw error;
    }
    return null;
  }

  /** This layer has made it; a folder that is emptied by the same layer keeps it. */
  private note(path: string): void {
    for (
      let each = path;
      each !== '' && !this.mine.has(each);
      each = each.slice(0, Math.max(0, each.lastIndexOf('/')))
    )
      this.mine.add(each);
  }

  private count(): void {
    this.entries += 1;
    if (this.entries > this.limits.entries)
      throw new LayerRefused(`The image holds more than ${this.limits.entries} entries.`);
  }

  /** Goes down a way inside the tree. @returns the real folder at its end; null when it is not there and `make` is false */
  private async walk(
    way: readonly string[],
    make: boolean,
    entry: readonly string[],
  ): Promise<string | null> {
    const key = way.join('/');
    const known = this.folders.has(key) ? key : this.ways.get(key);
    if (known !== undefined) return known;
    const shown = entry.join('/');
    let here = '';
    let links = 0;
    const steps = [...way].reverse();
    for (let step = steps.pop(); step !== undefined; step = steps.pop()) {
      if (step === '' || step === '.') continue;
      if (step === '..') {
        here = here.includes('/') ? here.slice(0, here.lastIndexOf('/')) : '';
        continue;
      }
      const next = at(here, step);
      if (this.folders.has(next)) {
        here = next;
        continue;
      }
      const info = await statOf(join(this.root, next));
      if (info?.isSymbolicLink()) {
        const target = await readlink(join(this.root, next));
        links += 1;
        if (links > maxLinks || steps.length > maxSteps)
          throw new LayerRefused('lies behind too many links.', shown);
        if (target.startsWith('/')) here = '';
        steps.push(...target.split('/').reverse());
        continue;
      }
      if (info && !info.isDirectory())
        throw new LayerRefused('lies behind an entry that is no folder.', shown);
      if (!info) {
        if (!make) return null;
        this.count();
        await this.folder(next, null, 0o755);
        this.note(next);
      }
      this.folders.add(next);
      here = next;
    }
    this.ways.set(key, here);
    return here;
  }

  private async folder(path: string, there: Stats | null, mode: number): Promise<void> {
    const full = join(this.root, path);
    if (there && !there.isDirectory()) await this.drop(path, there);
    if (!there?.isDirectory()) await mkdir(full);
    await this.own(full, mode | 0o700);
    this.folders.add(path);
  }

  private async file(full: string, entry: LayerEntry): Promise<void> {
    // 'wx' is O_CREAT | O_EXCL: an existing name, also a link, is an error.
    const file = await open(full, 'wx', 0o600);
    try {
      for await (const chunk of entry.body) await file.writeFile(chunk);
      await file.chmod(shared(entry.mode));
      if (this.gid !== null) await file.chown(0, this.gid);
      // Compiled files of some languages name the time of their source.
      if (entry.mtime > 0 && entry.mtime < 2 ** 33) await file.utimes(entry.mtime, entry.mtime);
    } finally {
      await file.close();
    }
  }

  private async hardlink({ target, segments }: LayerEntry, path: string, there: Stats | null): Promise<void> {
    const shown = segments.join('/');
    const way = layerPath(target);
    const name = way.at(-1);
    const parent = name === undefined ? null : await this.walk(way.slice(0, -1), false, segments);
    const from = parent === null ? null : at(parent, name!);
    const info = from === null ? null : await statOf(join(this.root, from));
    if (!info || !(info.isFile() || info.isSymbolicLink()))
      throw new LayerRefused('is a hard link to a file that is not in the image.', shown);
    if (from === path) return;
    if (there) await this.drop(path, there);
    await link(join(this.root, from!), join(this.root, path));
  }

  /** A whiteout takes away what lower layers have; one that means nothing is passed over, as those of other tools are. */
  private async remove(way: readonly string[], mark: string, entry: readonly string[]): Promise<void> {
    const name = mark.slice(whiteout.length);
    if (mark !== opaque && name.startsWith(whiteout)) return;
    if (name === '' || name === '.' || name === '..')
      throw new LayerRefused('takes away something that is no entry.', entry.join('/'));
    const parent = await this.walk(way, false, entry);
    if (parent === null) return;
    if (mark === opaque) return this.empty(parent);
    const path = at(parent, name);
    const there = await statOf(join(this.root, path));
    if (there && !this.mine.has(path)) await this.drop(path, there);
  }

  /** Takes away what lower layers have in a folder. */
  private async empty(folder: string): Promise<void> {
    for (const name of await readdir(join(this.root, folder))) {
      const path = at(folder, name);
      const there = await statOf(join(this.root, path));
      if (!there) continue;
      if (!this.mine.has(path)) await this.drop(path, there);
      else if (there.isDirectory()) await this.empty(path);
    }
  }

  private async drop(path: string, there: Stats): Promise<void> {
    await rm(join(this.root, path), { recursive: true, force: true });
    if (!there.isDirectory() && !there.isSymbolicLink()) return;
    this.folders.clear();
    this.folders.add('');
    this.ways.clear();
  }

  private async own(full: string, mode: number): Promise<void> {
    await chmod(full, shared(mode));
    if (this.gid !== null) await lchown(full, 0, this.gid);
  }
}

const at = (folder: string, name: string) => (folder === '' ? name : `${folder}/${name}`);

/** The group's rights are the owner's. */
const shared = (mode: number) => (mode & ~0o070) | ((mode & 0o700) >> 3);

const statOf = (full: string): Promise<Stats | null> =>
  lstat(full).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });

/** A link's way with its `..` taken out, never above the root. */
function clean(path: string): string[] {
  const segments: string[] = [];
  for (const step of path.split('/')) {
    if (step === '..') segments.pop();
    else if (step !== '' && step !== '.') segments.push(step);
  }
  return segments;
}
