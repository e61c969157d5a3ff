import { join, relative } from 'node:path';

/** A line of /proc/PID/mountinfo (proc(5)). */
export interface Mount {
  /** `major:minor` of its file system. */
  device: string;
  /** The folder of the file system that is seen at the point. */
  root: string;
  point: string;
  type: string;
  readOnly: boolean;
  /** Options of the file system itself. */
  options: string;
}

/** @param text of a file `mountinfo` */
export function mountsIn(text: string): Mount[] {
  const found: Mount[] = [];
  for (const line of text.split('\n')) {
    const [mount = '', system = ''] = line.split(' - ');
    const [, , device, root, point, own] = mount.split(' ');
    const [type, , options = ''] = system.split(' ');
    if (!device || !root || !point || !type) continue;
    found.push({
      ...{ device, type, options },
      ...{ root: plain(root), point: plain(point), readOnly: /(^|,)ro(,|$)/.test(own ?? '') },
    });
  }
  return found;
}

/** `upperdir` of an overlay: what is written into it is there. Null: it has none. */
export function upperOf({ type, options }: Mount): string | null {
  const [, path] = /(?:^|,)upperdir=([^,]+)/.exec(type === 'overlay' ? options : '') ?? [];
  return path === undefined ? null : plain(path);
}

/** Where what a mount shows lies among other mounts, such as the host's own; null: it is not there. */
export function placeOf({ device, root }: Mount, among: readonly Mount[]): string | null {
  for (const mount of among) {
    if (mount.device !== device) continue;
    const path = relative(mount.root, root);
    if (path !== '..' && !path.startsWith('../')) return join(mount.point, path);
  }
  return null;
}

/** The kernel writes blanks, commas and the like in octal. */
const plain = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_all, code: string) => String.fromCharCode(Number.parseInt(code, 8)));
