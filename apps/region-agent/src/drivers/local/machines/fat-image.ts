/** A file for the root folder of a FAT image. */
export interface FatFile {
  name: string;
  bytes: Buffer;
}

const sector = 512;
const reserved = 1;
const rootEntries = 64;

/**
 * A FAT12 image with a few files under their long names: the form in which cloud-init takes its seed (NoCloud, volume label
 * `CIDATA`). Written here because nothing of it needs a program of the host: one sector a cluster, one folder.
 * @throws Error when the files do not fit (2 MB)
 */
export function fatImage(label: string, files: readonly FatFile[]): Buffer {
  const clustersOf = ({ bytes }: FatFile) => Math.ceil(bytes.length / sector);
  const clusters = Math.max(64, files.reduce((sum, file) => sum + clustersOf(file), 0) + 8);
  // FAT12 is what has fewer clusters than this.
  if (clusters >= 4_085) throw new Error('the files do not fit into a FAT12 image');
  const fatSectors = Math.ceil(((clusters + 2) * 1.5) / sector);
  const rootSectors = (rootEntries * 32) / sector;
  const dataStart = reserved + 2 * fatSectors + rootSectors;
  const image = Buffer.alloc((dataStart + clusters) * sector);
  bootSector(image, label, fatSectors);
  const fat: number[] = [0xff8, 0xfff];
  const entries: Buffer[] = [entry(label.padEnd(11), 0x08, 0, 0)];
  let next = 2;
  files.forEach((file, index) => {
    const count = clustersOf(file);
    for (let each = 0; each < count; each += 1) fat[next + each] = each + 1 < count ? next + each + 1 : 0xfff;
    file.bytes.copy(image, (dataStart + next - 2) * sector);
    const short = `FILE${String(index).padStart(4, '0')}   `;
    entries.push(
      ...longName(file.name, short),
      entry(short, 0x20, count === 0 ? 0 : next, file.bytes.length),
    );
    next += count;
  });
  const table = packed(fat, fatSectors * sector);
  table.copy(image, reserved * sector);
  table.copy(image, (reserved + fatSectors) * sector);
  Buffer.concat(entries).copy(image, (reserved + 2 * fatSectors) * sector);
  return image;
}

function bootSector(image: Buffer, label: string, fatSectors: number): void {
  image.set([0xeb, 0x3c, 0x90], 0);
  image.write('NEBO    ', 3, 'latin1');
  image.writeUInt16LE(sector, 11);
  image.writeUInt8(1, 13);
  image.writeUInt16LE(reserved, 14);
  image.writeUInt8(2, 16);
  image.writeUInt16LE(rootEntries, 17);
  image.writeUInt16LE(image.length / sector, 19);
  image.writeUInt8(0xf8, 21);
  image.writeUInt16LE(fatSectors, 22);
  image.writeUInt16LE(32, 24);
  image.writeUInt16LE(2, 26);
  image.writeUInt8(0x80, 36);
  image.writeUInt8(0x29, 38);
  image.writeUInt32LE(0x4e65626f, 39);
  image.write(label.padEnd(11), 43, 'latin1');
  image.write('FAT12   ', 54, 'latin1');
  image.set([0x55, 0xaa], 510);
}

/** Twelve bits an entry. */
function packed(fat: readonly number[], bytes: number): Buffer {
  const table = Buffer.alloc(bytes);
  fat.forEach((value, index) => {
    const at = index + (index >> 1);
    const pair = table.readUInt16LE(at);
    table.writeUInt16LE(index % 2 === 0 ? (pair & 0xf000) | value : (pair & 0x000f) | (value << 4), at);
  });
  return table;
}

function entry(short: string, attributes: number, cluster: number, size: number): Buffer {
  const bytes = Buffer.alloc(32);
  bytes.write(short, 0, 'latin1');
  bytes.writeUInt8(attributes, 11);
  // 1 January 2020: the image has no time of its own.
  bytes.writeUInt16LE((40 << 9) | (1 << 5) | 1, 24);
  bytes.writeUInt16LE(cluster, 26);
  bytes.writeUInt32LE(size, 28);
  return bytes;
}

/** Entries of a long name, last part first: thirteen characters each, tied to the short name by its sum. */
function longName(name: string, short: string): Buffer[] {
  const sum = Buffer.from(short, 'latin1').reduce(
    (total, byte) => (((total & 1) << 7) + (total >> 1) + byte) & 255,
    0,
  );
  const places = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
  const parts = Math.ceil(name.length / places.length);
  return Array.from({ length: parts }, (_, index) => {
    const part = parts - index;
    const bytes = Buffer.alloc(32);
    bytes.writeUInt8(part | (index === 0 ? 0x40 : 0), 0);
    bytes.writeUInt8(0x0f, 11);
    bytes.writeUInt8(sum, 13);
    places.forEach((place, offset) => {
      const at = (part - 1) * places.length + offset;
      const code = at < name.length ? name.charCodeAt(at) : at === name.length ? 0 : 0xffff;
      bytes.writeUInt16LE(code, place);
    });
    return bytes;
  });
}
