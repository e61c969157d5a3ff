import { execFile } from 'node:child_process';
import { lstat, mkdir, readdir, rename } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { promisify } from 'node:util';
import { removeTree } from '../../system/trash.js';
import { type BuildPlan } from '../plan.js';
import { type SourceTree } from '../tree.js';
import { type BuildCache, type CacheOwner, type CachePart, type Kept } from './build-cache.js';

const execute = promisify(execFile);

/** One build's copy of its app's cache. */
export interface CacheGround {
  cache: BuildCache;
  owner: CacheOwner;
  tree: SourceTree;
  /** Folder of tools' caches on this host; it is made here. */
  dir: string;
  /** Takes parts of the tree until they become the cache: beside `dir`, where the build cannot reach. */
  staging: string;
  /** Who owns what the build writes; null: this process. */
  user: { uid: number; gid: number } | null;
  /** Nothing is taken; what this build leaves is kept all the same. */
  fresh: boolean;
  say(line: string): void;
}

/** What is installed, as a part. */
const installedPart = 'installed';

/**
 * The caches of one build, while nothing of the build runs: `take` before its commands, `put` after a success. Everything is
 * copied, so that a build can do with it what it wants.
 */
export class BuildWork {
  /** What `install` would make is there. */
  installed = false;
  private readonly taken: string[] = [];

  constructor(
    private readonly plan: BuildPlan,
    private readonly ground: CacheGround,
  ) {}

  /** Something of an earlier build is in this one. */
  get used(): boolean {
    return this.installed || this.taken.length > 0;
  }

  /** Makes the folders of tools and fills what the cache has. */
  async take(): Promise<void> {
    const { ground, plan } = this;
    const { caches } = plan;
    await mkdir(ground.dir, { recursive: true, mode: 0o755 });
    await ground.cache.use(ground.owner, async (dir, parts) => {
      const from = ground.fresh ? null : dir;
      this.installed = await this.takeInstalled(from, parts[installedPart]);
      for (const { name, wanted } of caches.tools) {
        const to = join(ground.dir, name);
        const lies = from !== null && parts[name] !== undefined && (await isFolder(join(from, name)));
        if (lies && (wanted === 'always' || !this.installed)) {
          await copy(join(from, name), to);
          this.taken.push(name);
        } else await mkdir(to, { mode: 0o755 });
      }
      for (const { name, path, inInstalled } of caches.tree)
        if (
          from !== null &&
          parts[name] &&
          (this.installed || !inInstalled) &&
          (await this.intoTree(join(from, name), path))
        )
          this.taken.push(name);
    });
    if (ground.user) await own(ground.dir, ground.user);
    if (this.used)
      ground.say(
        `cache of earlier builds: ${[...(this.installed ? ['what is installed'] : []), ...this.taken].join(', ')}`,
      );
  }

  /** Variables that lead the tools into their folders. @param inside path of the folder as commands see it */
  variables(inside: string): { name: string; value: string }[] {
    return this.plan.caches.tools.flatMap(({ name, variables }) =>
      variables.map((variable) => ({ name: variable, value: posix.join(inside, name) })),
    );
  }

  /** Moves what is no part of the artifact out of the tree, before that is packed. */
  async clearTree(): Promise<void> {
    for (const { name, path } of this.plan.caches.tree) await this.outOfTree(path, name);
  }

  /** Makes what the build has left the app's cache; the tree is not whole after it. */
  async put(): Promise<Kept | null> {
    const { caches } = this.plan;
    const { ground } = this;
    const parts: Record<string, Omit<CachePart, 'bytes'>> = {};
    const keep: string[] = [];
    await mkdir(ground.staging, { recursive: true, mode: 0o700 });
    for (const { name, wanted } of caches.tools) {
      if (this.installed && wanted === 'install') keep.push(name);
      else if (
        (await isFolder(join(ground.dir, name))) &&
        (await readdir(join(ground.dir, name))).length > 0
      ) {
        await rename(join(ground.dir, name), join(ground.staging, name));
        parts[name] = { key: null, folders: [] };
      }
    }
    for (const { name } of caches.tree)
      if (await isFolder(join(ground.staging, name))) parts[name] = { key: null, folders: [] };
    if (this.installed) keep.push(installedPart);
    else if (caches.installed) await this.putInstalled(parts, caches.installed);
    if (Object.keys(parts).length + keep.length === 0) return null;
    return ground.cache.commit(ground.owner, { dir: ground.staging, parts, keep });
  }

  private async takeInstalled(from: string | null, part: CachePart | undefined): Promise<boolean> {
    const { installed } = this.plan.caches;
    if (from === null || !part || !installed || part.key !== installed.key) return false;
    for (const [number, path] of part.folders.entries())
      if (!(await this.intoTree(join(from, installedPart, String(number)), path))) return false;
    return true;
  }

  private async putInstalled(
    parts: Record<string, Omit<CachePart, 'bytes'>>,
    { key, folders }: { key: string; folders(): Promise<string[]> },
  ): Promise<void> {
    const to = join(this.ground.staging, installedPart);
    await mkdir(to, { mode: 0o700 });
    const found: string[] = [];
    for (const path of await folders())
      if (await this.outOfTree(path, join(installedPart, String(found.length)))) found.push(path);
    if (found.length > 0) parts[installedPart] = { key, folders: found };
    else await removeTree(to);
  }

  /** @returns false where the source itself has something there, or a link leads out of it */
  private async intoTree(from: string, path: string): Promise<boolean> {
    const { tree, user } = this.ground;
    const parent = dirname(path);
    const made: string[] = [];
    for (let dir = parent; dir !== '.' && !(await tree.has(dir, 'folder')); dir = dirname(dir))
      made.unshift(dir);
    const base = await tree.real(made[0] ? dirname(made[0]) : parent).catch(() => null);
    // Killed while it was renewed, an agent may have left a part without its folder.
    if (base === null || !(await isFolder(from))) return false;
    const to = join(base, ...(made.length > 0 ? [made.map((dir) => posix.basename(dir)).join('/')] : []));
    const target = join(to, posix.basename(path));
    if (await lstat(target).catch(() => null)) return false;
    await mkdir(to, { recursive: true });
    await copy(from, target);
    if (user) await own(made.length > 0 ? join(base, posix.basename(made[0]!)) : target, user);
    return true;
  }

  private async outOfTree(path: string, part: string): Promise<boolean> {
    const { tree, staging } = this.ground;
    if (!(await tree.has(path, 'folder'))) return false;
    const parent = await tree.real(dirname(path)).catch(() => null);
    if (parent === null) return false;
    const from = join(parent, posix.basename(path));
    // A link of the build's own leads to what it likes: only a folder that stands there itself is taken.
    if (!(await lstat(from)).isDirectory()) return false;
    await mkdir(dirname(join(staging, part)), { recursive: true, mode: 0o700 });
    await rename(from, join(staging, part));
    return true;
  }
}

/** Itself, not behind a link. */
const isFolder = async (path: string): Promise<boolean> =>
  (await lstat(path).catch(() => null))?.isDirectory() ?? false;

const options = { env: { PATH: '/usr/bin:/bin', LANG: 'C' } };

/** A copy of a folder with times, modes and links as they are; by reference where the file system can. */
async function copy(from: string, to: string): Promise<void> {
  const cheap = process.platform === 'linux' ? ['--reflink=auto'] : [];
  await execute('cp', ['-a', ...cheap, '--', from, to], options);
}

/** Never through a link: what it points to is somebody else's. */
async function own(path: string, { uid, gid }: { uid: number; gid: number }): Promise<void> {
  await execute('chown', ['-R', '-h', `${uid}:${gid}`, '--', path], options);
}
