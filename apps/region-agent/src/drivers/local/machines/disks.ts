import { rm, stat, statfs } from 'node:fs/promises';
import { availableParallelism, totalmem } from 'node:os';
import { type RegionCapacity } from '@nebo/contracts';
import { MachineFault } from '../../machine-driver.js';
import { type ImageStore } from './image-store.js';
import { runTool } from './run-tool.js';

/** Bytes of what users know as a GB. */
export const gib = 1024 ** 3;

/**
 * A disk that stands on bytes of the store and takes what is written.
 * @throws MachineFault when it is too small for them
 */
export async function makeOverlay(
  store: ImageStore,
  path: string,
  base: string,
  disk_gb: number,
  signal: AbortSignal,
): Promise<void> {
  const { format, bytes } = await store.disk(base, signal);
  const least = Math.ceil(bytes / gib);
  if (least > disk_gb) throw new MachineFault(`its image needs a disk of at least ${least} GB`);
  await rm(path, { force: true });
  const on = ['-F', format, '-b', store.path(base)];
  await runTool(['qemu-img', 'create', '-q', '-f', 'qcow2', ...on, path, `${disk_gb}G`], signal, 60_000);
}

/**
 * What this host holds in all. A tenth of memory (at least 1 GiB) and of the disk stay the host's own.
 * @param dir on the file system of the disks
 * @param disks files of the machines that there are: their room is theirs, not anybody's who came before
 */
export async function hostCapacity(dir: string, disks: readonly string[]): Promise<RegionCapacity> {
  const memory = totalmem() - Math.max(gib, totalmem() / 10);
  const { bavail, blocks, bsize } = await statfs(dir);
  const files = await Promise.all(disks.map((path) => stat(path).catch(() => null)));
  const own = files.reduce((sum, file) => sum + (file ? file.blocks * 512 : 0), 0);
  const disk = bavail * bsize + own - (blocks * bsize) / 10;
  return {
    vcpu: availableParallelism(),
    memory_mb: Math.max(0, Math.floor(memory / 1024 ** 2)),
    disk_gb: Math.max(0, Math.floor(disk / gib)),
  };
}
