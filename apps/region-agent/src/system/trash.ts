import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type AgentLog } from '../agent-log.js';

const execute = promisify(execFile);

/** Folders that may wait; whoever throws away more waits too, so that a disk cannot fill faster than it is emptied. */
const mostWaiting = 8;

/**
 * Folders of many files that nobody needs any more: out of the way at once by a rename, removed one after another beside everything
 * else, because that can take as long as what made them. What an agent that was killed has left goes with the next one's start.
 */
export class Trash {
  private readonly waiting: string[] = [];
  private work: Promise<void> | null = null;

  /** @param dir of its own, on the file system of what is thrown away */
  constructor(
    private readonly dir: string,
    private readonly log: AgentLog,
  ) {}

  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.dir)) this.waiting.push(join(this.dir, name));
    this.begin();
  }

  /** Takes a folder away; one that is not there is fine. Waits only while too much is waiting already. */
  async take(path: string): Promise<void> {
    const to = join(this.dir, randomBytes(8).toString('hex'));
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    try {
      await rename(path, to);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      // On another file system, or one's own and read-only (its `..` would change): removed where it is.
      return removeTree(path);
    }
    this.waiting.push(to);
    this.begin();
    while (this.waiting.length > mostWaiting) await this.work;
  }

  /** Settled when nothing is left. */
  async emptied(): Promise<void> {
    while (this.work) await this.work;
  }

  private begin(): void {
    this.work ??= this.next().finally(() => {
      this.work = null;
      if (this.waiting.length > 0) this.begin();
    });
  }

  private async next(): Promise<void> {
    const path = this.waiting.shift();
    if (path === undefined) return;
    try {
      await remove(path);
    } catch (error) {
      this.log.warn({ error: String(error) }, 'a folder could not be removed: the next start tries again');
    }
  }
}

/** As a program of its own with what the builds leave of the processors: tens of thousands of files are work. */
async function remove(path: string): Promise<void> {
  const options = { env: { PATH: '/usr/bin:/bin', LANG: 'C' } };
  // What might still be mounted in there is not ours to empty.
  const own = process.platform === 'linux' ? ['--one-file-system'] : [];
  try {
    await execute('nice', ['-n', '10', 'rm', '-rf', ...own, '--', path], options);
  } catch (error) {
    // Root is not kept out by modes: what stopped it there (a mount) must not be walked into.
    if (process.getuid?.() === 0) throw error;
    await removeTree(path);
  }
}

/** Removes a tree; Go's modules lie in folders that even their owner cannot write. */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if (!['EACCES', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    await makeWritable(path);
    await rm(path, { recursive: true, force: true });
  }
}

async function makeWritable(path: string): Promise<void> {
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true }))
    if (entry.isDirectory()) await makeWritable(join(path, entry.name));
}
