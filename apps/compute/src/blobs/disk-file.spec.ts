import { gigabytes, NotADisk, readDiskFile } from './disk-file.js';

/** The header of a qcow2 file. */
function qcow2(
  more: Partial<Record<'version' | 'clusterBits' | 'crypt', number>> &
    Partial<Record<'backing' | 'size' | 'incompatible', bigint>> = {},
): Buffer {
  const head = Buffer.alloc(4_096);
  head.write('QFI\xfb', 'latin1');
  head.writeUInt32BE(more.version ?? 3, 4);
  head.writeBigUInt64BE(more.backing ?? 0n, 8);
  head.writeUInt32BE(more.clusterBits ?? 16, 20);
  head.writeBigUInt64BE(more.size ?? 3n * 1024n ** 3n, 24);
  head.writeUInt32BE(more.crypt ?? 0, 32);
  head.writeBigUInt64BE(more.incompatible ?? 0n, 72);
  return head;
}

function raw(signature: [number, string], bytes = 4_096): Buffer {
  const head = Buffer.alloc(bytes);
  head.write(signature[1], signature[0], 'latin1');
  return head;
}

describe('disk files', () => {
  it.each([2, 3])('a qcow2 file of version %d says how large its disk is', (version) => {
    expect(readDiskFile(qcow2({ version }), 200_000)).toEqual({
      format: 'qcow2',
      virtualBytes: 3 * 1024 ** 3,
    });
  });

  it('what another version means by its flags is not read as version 2’s', () => {
    expect(readDiskFile(qcow2({ version: 2, incompatible: 7n }), 200_000).format).toBe('qcow2');
  });

  it.each([
    ['a partition table of the old kind', 510, '\x55\xaa'],
    ['a GUID partition table', 512, 'EFI PART'],
  ])('anything else is raw with %s', (_what, at, signature) => {
    expect(readDiskFile(raw([at, signature]), 1024 ** 2)).toEqual({
      format: 'raw',
      virtualBytes: 1024 ** 2,
    });
  });

  it.each([
    ['a text', Buffer.from('hello'), 5, 'neither a qcow2 file nor a raw disk'],
    ['nothing', Buffer.alloc(0), 0, 'neither'],
    ['a file of zeros', Buffer.alloc(4_096), 4_096, 'neither'],
    ['half a sector more', raw([510, '\x55\xaa']), 4_100, 'cut off'],
    ['a cut qcow2', qcow2().subarray(0, 60), 60, 'cut off'],
    ['version 1', qcow2({ version: 1 }), 4_096, 'version 1'],
    ['a backing file', qcow2({ backing: 104n }), 4_096, 'backing file'],
    ['an external data file', qcow2({ incompatible: 4n }), 4_096, 'another file'],
    ['a damaged one', qcow2({ incompatible: 2n }), 4_096, 'damaged'],
    ['absurd clusters', qcow2({ clusterBits: 40 }), 4_096, 'damaged'],
    ['encryption', qcow2({ crypt: 2 }), 4_096, 'encrypted'],
    ['no size', qcow2({ size: 0n }), 4_096, 'impossible size'],
    ['a size beyond all', qcow2({ size: 2n ** 60n }), 4_096, 'impossible size'],
  ])('%s is refused', (_what, head, bytes, reason) => {
    expect(() => readDiskFile(head, bytes)).toThrow(NotADisk);
    expect(() => readDiskFile(head, bytes)).toThrow(reason);
  });

  it.each([
    [1, 1],
    [1024 ** 3, 1],
    [1024 ** 3 + 1, 2],
  ])('%d bytes need %d GB', (bytes, expected) => expect(gigabytes(bytes)).toBe(expected));
});
