/** Two small formats: the archive that a Linux kernel unpacks as its first file system, and the one it is packed in itself. */

/**
 * An archive of the form `newc`.
 * @param {{ path: string, mode: number, bytes: Buffer }[]} entries parents before what is in them
 */
export function cpio(entries) {
  const parts = [];
  const add = ({ path, mode, bytes }, index) => {
    const name = Buffer.from(`${path}\0`);
    const links = (mode & 0o170000) === 0o040000 ? 2 : 1;
    // Inode, mode, owner, group, links, time, size, devices, length of the name, no sum: eight hex digits each.
    const fields = [index + 1, mode, 0, 0, links, 0, bytes.length, 0, 0, 0, 0, name.length, 0];
    const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}`;
    parts.push(padded(Buffer.concat([Buffer.from(header), name])), padded(bytes));
  };
  entries.forEach(add);
  add({ path: 'TRAILER!!!', mode: 0, bytes: Buffer.alloc(0) }, entries.length);
  return Buffer.concat(parts);
}

const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((4 - (bytes.length % 4)) % 4)]);

/**
 * The ELF kernel in a `vmlinuz`, which a virtual machine starts at its PVH entry without unpacking anything.
 * @throws Error when it is not packed with LZ4, as Debian's is
 */
export function vmlinux(vmlinuz) {
  const at = vmlinuz.indexOf(Buffer.from([0x02, 0x21, 0x4c, 0x18]));
  if (at < 0) throw new Error('the kernel is not packed with LZ4');
  const blocks = [];
  for (let place = at + 4; place + 4 <= vmlinuz.length;) {
    const length = vmlinuz.readUInt32LE(place);
    // Behind the last block stands the size of the whole, which is no block's.
    if (length === 0 || place + 4 + length > vmlinuz.length || length > 9 << 20) break;
    const block = lz4Block(vmlinuz.subarray(place + 4, place + 4 + length));
    blocks.push(block);
    place += 4 + length;
    if (block.length < 8 << 20) break;
  }
  const kernel = Buffer.concat(blocks);
  if (kernel.readUInt32BE(0) !== 0x7f454c46) throw new Error('the kernel in the vmlinuz is no ELF file');
  return kernel;
}

/** One block of LZ4's legacy frame: at most 8 MiB when unpacked. */
function lz4Block(packed) {
  const out = Buffer.alloc(8 << 20);
  let [read, written] = [0, 0];
  const longer = (length) => {
    if (length < 15) return length;
    for (let more = 255; more === 255; length += more) more = packed[read++];
    return length;
  };
  while (read < packed.length) {
    const token = packed[read++];
    const literals = longer(token >> 4);
    packed.copy(out, written, read, read + literals);
    read += literals;
    written += literals;
    // The last sequence has no match.
    if (read >= packed.length) break;
    const back = packed.readUInt16LE(read);
    read += 2;
    const length = longer(token & 15) + 4;
    // A match may reach into what it writes itself.
    for (const end = written + length; written < end; written += 1) out[written] = out[written - back];
  }
  return out.subarray(0, written);
}
