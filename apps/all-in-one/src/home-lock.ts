import { readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Takes the data folder for this process: two installations on one folder would spoil each other. The mark of a process that
 * was killed does not count.
 * @returns gives the folder back
 * @throws Error naming the process that has it
 */
export function takeHome(home: string): () => void {
  const path = join(home, 'nebo.pid');
  const release = () => rmSync(path, { force: true });
  for (;;) {
    try {
      writeFileSync(path, `${process.pid}\n`, { flag: 'wx' });
      return release;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const owner = Number(readFileSync(path, 'utf8'));
    if (isNebo(owner))
      throw new Error(
        `${home} is in use by process ${owner}; stop it, or choose another folder with NEBO_HOME`,
      );
    release();
  }
}

/** The number may belong to another program meanwhile. */
function isNebo(pid: number): boolean {
  if (!(pid > 1) || pid === process.pid) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  try {
    return readlinkSync(`/proc/${pid}/exe`) === process.execPath;
  } catch {
    return true; // No /proc here: better refuse than spoil.
  }
}
