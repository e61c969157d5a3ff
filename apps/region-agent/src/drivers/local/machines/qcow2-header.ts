import { open } from 'node:fs/promises';
import { MachineFault } from '../../machine-driver.js';

/** What the head of a qcow2 file says of other files (its format: docs/interop/qcow2 of QEMU). */
export interface Qcow2Links {
  /** The file that it stands on, as it is written there. */
  backing: string | null;
  backingFormat: string | null;
  /** Its bytes lie in another file. */
  hasDataFile: boolean;
  encrypted: boolean;
}

/** Name and extensions lie in the first cluster, which the files made here have 64 KiB of. */
const headBytes = 65_536;
const extensions = { end: 0, backingFormat: 0xe2792aca, dataFile: 0x44415441 } as const;

/** Read without QEMU's tools, which open the files that are named there. @returns null for a file of another kind */
export async function qcow2Links(path: string): Promise<Qcow2Links | null> {
  const file = await open(path);
  try {
    // Behind the end of a short file QEMU reads zeros too.
    const { buffer } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0);
    return linksOf(buffer);
  } finally {
    await file.close();
  }
}

function linksOf(head: Buffer): Qcow2Links | null {
  if (head.toString('latin1', 0, 4) !== 'QFI\xfb') return null;
  const isOld = head.readUInt32BE(4) < 3;
  const links: Qcow2Links = {
    backing: null,
    backingFormat: null,
    hasDataFile: !isOld && (head.readUInt32BE(76) & 4) !== 0,
    encrypted: head.readUInt32BE(32) !== 0,
  };
  const nameAt = Number(head.readBigUInt64BE(8));
  if (nameAt !== 0) links.backing = head.toString('utf8', nameAt, nameAt + head.readUInt32BE(16));
  for (let at = isOld ? 72 : head.readUInt32BE(100); at + 8 <= head.length;) {
    const [type, length] = [head.readUInt32BE(at), head.readUInt32BE(at + 4)];
    if (type === extensions.end) break;
    if (type === extensions.dataFile) links.hasDataFile = true;
    if (type === extensions.backingFormat)
      links.backingFormat = head.toString('utf8', at + 8, at + 8 + length);
    at += 8 + Math.ceil(length / 8) * 8;
  }
  return links;
}

/**
 * Checks that a machine's disk still stands on what it was made of, and on nothing else. QEMU writes to this file, and opens
 * what its head names as root before it confines itself: a guest that has taken over its QEMU once must not read or write
 * files of the host by the next start.
 * @throws MachineFault
 */
export async function checkStandsOn(disk: string, base: string): Promise<void> {
  const links = await qcow2Links(disk);
  // What is no qcow2 file QEMU itself refuses: it is told which format to read.
  if (links === null) return;
  const isOwn =
    links.backing === base &&
    (links.backingFormat === 'qcow2' || links.backingFormat === 'raw') &&
    !links.hasDataFile &&
    !links.encrypted;
  if (!isOwn) throw new MachineFault('its disk is not the one that was made for it; restore a backup');
}
