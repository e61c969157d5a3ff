import { constants } from 'node:fs';
import { lstat, open, readdir, realpath } from 'node:fs/promises';
import { join, posix, relative, sep } from 'node:path';

/** A step of a build failed for a reason that the user can understand. */
export class BuildFailure extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'BuildFailure';
  }
}

/**
 * The unpacked source as the agent reads it. Build commands write here, and the agent may be root: nothing is ever read
 * through a link that leads out of the tree.
 */
export class SourceTree {
  constructor(readonly root: string) {}

  /**
   * A folder that the user named, as a clean relative path (`.` for the root).
   * @throws BuildFailure when it is absolute, leaves the tree, or is no folder
   */
  async folder(setting: string, value: string): Promise<string> {
    const clean =
      posix.normalize(value.trim().replaceAll('\\', '/')).replace(/^\.\//, '').replace(/\/+$/, '') || '.';
    if (
      clean.startsWith('/') ||
      clean === '..' ||
      clean.startsWith('../') ||
      /^[A-Za-z]:/.test(clean) ||
      clean.includes('\0')
    )
      throw new BuildFailure(`${setting} "${value}" leaves the source folder. Give a path inside it.`);
    const real = await this.inside(clean);
    if (real === 'outside')
      throw new BuildFailure(`${setting} "${value}" is a link that leaves the source folder.`);
    if (real === null || !(await lstat(real)).isDirectory())
      throw new BuildFailure(`${setting} "${value}" is not a folder of the source.`);
    return clean;
  }

  /** Whether there is a file (or folder) under this name, in the tree itself. */
  async has(path: string, kind: 'file' | 'folder' = 'file'): Promise<boolean> {
    const real = await this.inside(path);
    if (real === null || real === 'outside') return false;
    const info = await lstat(real);
    return kind === 'file' ? info.isFile() : info.isDirectory();
  }

  /** A file's text, null when there is none in the tree or it is larger than `limit` bytes. */
  async read(path: string, limit = 2 * 1024 * 1024): Promise<string | null> {
    const real = await this.inside(path);
    if (real === null || real === 'outside') return null;
    const file = await open(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
      () => null,
    );
    if (!file) return null;
    try {
      const info = await file.stat();
      return info.isFile() && info.size <= limit ? await file.readFile('utf8') : null;
    } finally {
      await file.close();
    }
  }

  /** Names in a folder, sorted; none where there is no folder. */
  async list(path: string): Promise<string[]> {
    const real = await this.inside(path);
    if (real === null || real === 'outside' || !(await lstat(real)).isDirectory()) return [];
    return (await readdir(real)).sort();
  }

  /**
   * The folders below a folder, itself first, with the names in them; links are not followed.
   * @param levels how deep
   * @param into whether a folder of this name is entered
   */
  async walk(
    path: string,
    levels: number,
    into: (name: string) => boolean,
  ): Promise<{ path: string; names: string[] }[]> {
    const real = await this.inside(path);
    if (real === null || real === 'outside' || !(await lstat(real)).isDirectory()) return [];
    const entries = await readdir(real, { withFileTypes: true });
    const found = [{ path, names: entries.map(({ name }) => name).sort() }];
    if (levels === 0) return found;
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1)))
      if (entry.isDirectory() && into(entry.name))
        found.push(...(await this.walk(posix.join(path, entry.name), levels - 1, into)));
    return found;
  }

  /** Whether a folder holds anything. */
  async filled(path: string): Promise<boolean> {
    const real = await this.inside(path);
    if (real === null || real === 'outside' || !(await lstat(real)).isDirectory()) return false;
    return (await readdir(real)).length > 0;
  }

  /** The real path on this host. @throws BuildFailure when it leaves the tree or is not there */
  async real(path: string): Promise<string> {
    const real = await this.inside(path);
    if (real === null) throw new BuildFailure(`"${path}" is not there after the build.`);
    if (real === 'outside') throw new BuildFailure(`"${path}" is a link that leaves the source folder.`);
    return real;
  }

  private async inside(path: string): Promise<string | 'outside' | null> {
    const root = await realpath(this.root);
    const real = await realpath(join(root, path)).catch(() => null);
    if (real === null) return null;
    const within = relative(root, real).split(sep).join('/');
    return within === '..' || within.startsWith('../') || within.startsWith('/') ? 'outside' : real;
  }
}
