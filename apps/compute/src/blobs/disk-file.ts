/** What a disk file says of itself. */
export interface DiskFile {
  format: 'qcow2' | 'raw';
  /** Bytes of the disk that a machine sees. */
  virtualBytes: number;
}

/** A file that is no disk, or one that must not be used; the message is for the operator. */
export class NotADisk extends Error {
  override readonly name = 'NotADisk';
}

/** So many bytes of the beginning are enough to tell. */
export const diskHeadBytes = 4_096;

const qcow2Magic = 0x514649fb; // "QFI" and 0xfb
const largest = 2n ** 53n;

/**
 * Reads the beginning of a disk file: qcow2 by its header, anything else as raw when it has a partition table. A qcow2 file
 * that names other files (a backing file, an external data file) would have the host read them, and is refused.
 * @param head the first bytes, at least 1,024 of a file that has them
 * @param bytes the file's size
 * @throws NotADisk
 */
export function readDiskFile(head: Buffer, bytes: number): DiskFile {
  if (head.length >= 4 && head.readUInt32BE(0) === qcow2Magic) return readQcow2(head);
  const hasTable =
    head.length >= 1_024 &&
    (head.readUInt16BE(510) === 0x55aa || head.toString('latin1', 512, 520) === 'EFI PART');
  if (!hasTable) throw new NotADisk('is neither a qcow2 file nor a raw disk with a partition table');
  if (bytes % 512 !== 0) throw new NotADisk('is a raw disk with half a sector at its end: it is cut off');
  return { format: 'raw', virtualBytes: bytes };
}

/** Offsets: the published description of the format, section "Header". All numbers are big-endian. */
function readQcow2(head: Buffer): DiskFile {
  if (head.length < 104) throw new NotADisk('is a qcow2 file that is cut off');
  const version = head.readUInt32BE(4);
  if (version !== 2 && version !== 3) throw new NotADisk(`is a qcow2 file of version ${version}`);
  if (head.readBigUInt64BE(8) !== 0n)
    throw new NotADisk('needs a backing file; convert it to one that stands alone');
  const clusterBits = head.readUInt32BE(20);
  if (clusterBits < 9 || clusterBits > 21) throw new NotADisk('is a damaged qcow2 file');
  const size = head.readBigUInt64BE(24);
  if (size === 0n || size >= largest) throw new NotADisk('is a qcow2 file of an impossible size');
  if (head.readUInt32BE(32) !== 0) throw new NotADisk('is encrypted');
  if (version === 3) {
    const incompatible = head.readBigUInt64BE(72);
    if ((incompatible & 0b100n) !== 0n) throw new NotADisk('keeps its data in another file');
    if ((incompatible & 0b10n) !== 0n) throw new NotADisk('is marked as damaged');
  }
  return { format: 'qcow2', virtualBytes: Number(size) };
}

/** Whole GB (2^30 bytes) that a disk needs to hold so many bytes. */
export const gigabytes = (bytes: number): number => Math.max(1, Math.ceil(bytes / 1024 ** 3));
