import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { diskUsed } from '../system/disk.js';
import { mountsIn, placeOf, upperOf } from '../system/mounts.js';

/** What the steps of a build have written. */
export interface Written {
  /** Bytes on top of the image that they stand on. */
  own: number;
  /** Bytes of file systems that show the image and what is written in one. */
  whole: number;
}

/** The same as folders of this host. */
export interface WrittenFolders {
  own: ReadonlySet<string>;
  whole: ReadonlySet<string>;
}

/** File systems that take no disk, or none that the group of a step does not count as memory. */
const virtual =
  /^(proc|sysfs|tmpfs|ramfs|devtmpfs|devpts|mqueue|cgroup2?|securityfs|debugfs|tracefs|bpf|pstore|configfs|fusectl|nsfs|hugetlbfs)$/;

/**
 * The folders of this host into which processes write: the upper layers of their overlays and what is mounted beside, such as
 * volumes. The kernel tells them, not the processes, which could not mount anything without privileges.
 * @param storage folders that upper layers may be named relative to, as engines do for images of many layers
 */
export async function writtenFolders(
  pids: readonly number[],
  storage: readonly string[],
): Promise<WrittenFolders> {
  const read = async (pid: number | 'self') =>
    mountsIn(await readFile(`/proc/${pid}/mountinfo`, 'utf8').catch(() => ''));
  const host = await read('self');
  const own = new Set<string>();
  const whole = new Set<string>();
  for (const pid of pids)
    for (const mount of await read(pid)) {
      const upper = upperOf(mount);
      if (upper !== null) {
        for (const path of isAbsolute(upper) ? [upper] : storage.map((folder) => join(folder, upper)))
          own.add(path);
      } else if (!mount.readOnly && !virtual.test(mount.type)) {
        const path = placeOf(mount, host);
        if (path !== null) (mount.point === '/' ? whole : own).add(path);
      }
    }
  return { own, whole };
}

/** Counts what is in them. */
export async function bytesIn({ own, whole }: WrittenFolders): Promise<Written> {
  const sum = async (folders: ReadonlySet<string>) => {
    let bytes = 0;
    for (const folder of folders) bytes += await diskUsed(folder);
    return bytes;
  };
  return { own: await sum(own), whole: await sum(whole) };
}
