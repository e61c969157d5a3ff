/** A disk that a PC's firmware starts: a GUID partition table, GRUB in a partition of its own, the root file system. */
import { execFile } from 'node:child_process';
import { open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const grub = '/usr/lib/grub/i386-pc';
const sector = 512;
/** Where the two partitions begin, in sectors: GRUB's has the mebibyte between them. */
const places = { grub: 2048, root: 4096 };
/** The backup of the partition table takes the last sectors. */
const tail = 2048;

/** What GRUB needs before it can read its own folder. */
const modules = [
  ...['biosdisk', 'part_gpt', 'ext2', 'normal', 'configfile', 'linux', 'serial', 'terminal', 'boot'],
];

/**
 * Joins a root file system and GRUB to a raw disk. No loop device and no mount: it works in a container too.
 * @param {{ root: string, disk: string, work: string }} files the file system (made with a label), where the disk goes, and
 *   a folder for what comes in between
 */
export async function makeBootable({ root, disk, work }) {
  const sectors = Math.ceil((await stat(root)).size / sector);
  const file = await open(disk, 'w');
  await file.truncate((places.root + sectors + tail) * sector);
  await file.close();
  await run('sgdisk', [
    ...['--set-alignment=2048', `--new=1:${places.grub}:${places.root - 1}`, '--typecode=1:ef02'],
    ...[`--new=2:${places.root}:0`, '--typecode=2:8300', disk],
  ]);
  const core = join(work, 'core.img');
  await run('grub-mkimage', [
    ...['-O', 'i386-pc', '-d', grub, '-o', core, '-p', '(hd0,gpt2)/boot/grub'],
    ...modules,
  ]);
  const target = await open(disk, 'r+');
  try {
    await writeGrub(target, await readFile(join(grub, 'boot.img')), await readFile(core));
  } finally {
    await target.close();
  }
  const [block, at] = [1 << 20, places.root * sector];
  await run('dd', [
    ...[`if=${root}`, `of=${disk}`, `bs=${block}`, `seek=${at / block}`],
    ...['conv=notrunc,sparse', 'status=none'],
  ]);
}

/** What `grub-bios-setup` does on a device (GRUB's `include/grub/i386/pc/boot.h` names the places). */
async function writeGrub(disk, boot, core) {
  if (core.length > (places.root - places.grub) * sector)
    throw new Error('GRUB is larger than its partition');
  const first = Buffer.alloc(sector);
  await disk.read(first, 0, sector, 0);
  const code = Buffer.from(boot);
  // The partition table stays, and with it what stands between the code and the table.
  first.copy(code, 440, 440, 510);
  code.writeBigUInt64LE(BigInt(places.grub), 0x5c);
  await disk.write(code, 0, sector, 0);
  const image = Buffer.alloc(Math.ceil(core.length / sector) * sector);
  core.copy(image);
  // The first sector of the core reads the others: where they begin, and how many.
  image.writeBigUInt64LE(BigInt(places.grub + 1), 0x1f4);
  image.writeUInt16LE(image.length / sector - 1, 0x1fc);
  await disk.write(image, 0, image.length, places.grub * sector);
}
