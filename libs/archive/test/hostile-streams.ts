import { gzipSync } from 'node:zlib';
import { around, ok, type Family } from './hostile.js';
import { endOfTar, paxRecord, rawArchive, rawEntry, rawHeader, rawPax, rawTar } from './raw-tar.js';

/** Families about the stream as a whole: its ends, its size, its headers. */
export const streamFamilies: readonly Family[] = [
  {
    name: 'bytes behind the tar',
    rules: ['trailing_data'],
    make: (r) =>
      gzipSync(
        Buffer.concat([
          rawTar(ok(r)),
          r.pick([
            rawEntry({ name: 'late' }, 'x'),
            Buffer.from('tail'),
            Buffer.concat([Buffer.alloc(4096), Buffer.from([1])]),
          ]),
        ]),
      ),
  },
  {
    name: 'bytes behind the gzip file',
    rules: ['trailing_data'],
    make: (r) =>
      Buffer.concat([
        rawArchive(ok(r)),
        r.pick([Buffer.from('PK\x03\x04'), Buffer.alloc(r.int(1, 600)), Buffer.from('x')]),
      ]),
  },
  {
    name: 'second gzip member',
    rules: ['second_member'],
    make: (r) =>
      Buffer.concat([
        rawArchive(ok(r)),
        r.pick([rawArchive(ok(r)), gzipSync(''), Buffer.from([0x1f, 0x8b])]),
      ]),
  },
  {
    name: 'truncated',
    rules: ['truncated'],
    make: (r) => {
      const whole = rawArchive(rawEntry({ name: 'a' }, r.bytes(3000)), ok(r));
      return r.next() < 0.7
        ? whole.subarray(0, r.int(3, whole.length - 1))
        : gzipSync(
            r.pick([
              rawEntry({ name: 'a' }, 'x'),
              Buffer.concat([ok(r), Buffer.alloc(512)]),
              rawHeader({ name: 'a', size: 9 }),
              Buffer.concat([rawPax([['path', 'x']]), endOfTar]),
            ]),
          );
    },
  },
  {
    name: 'not gzip, or no tar inside',
    rules: ['not_gzip', 'bad_header'],
    make: (r) =>
      r.pick([
        rawTar(ok(r)),
        Buffer.from('hello'),
        Buffer.from('PK\x03\x04zip'),
        gzipSync('x'.repeat(2000)),
        Buffer.from([0x1f, 0x8b, 7, 0, 0, 0, 0, 0, 0, 3]),
        Buffer.from([0x1f, 0x9d, 0x90]),
      ]),
  },
  {
    name: 'empty',
    rules: ['empty_body', 'empty_archive'],
    make: (r) =>
      r.pick([
        Buffer.alloc(0),
        gzipSync(endOfTar),
        rawArchive(rawEntry({ name: './', type: '5' }).subarray(0, 0)),
      ]),
  },
  {
    name: 'damaged',
    rules: ['corrupt', 'truncated', 'bad_header', 'trailing_data', 'second_member'],
    make: (r) => {
      const whole = rawArchive(rawEntry({ name: 'a' }, r.bytes(5000)));
      const at = r.next() < 0.5 ? whole.length - r.int(1, 8) : r.int(1500, whole.length - 9);
      whole[at] = whole.readUInt8(at) ^ r.int(1, 255);
      return whole;
    },
  },
  {
    name: 'zip bomb',
    rules: ['ratio', 'expanded_size'],
    limits: { ratioAfterBytes: 1 << 20, expandedBytes: 8 << 20 },
    make: (r) => rawArchive(rawEntry({ name: 'zeros' }, Buffer.alloc(r.int(2, 12) << 20))),
  },
  {
    name: 'too large',
    rules: ['compressed_size'],
    limits: { compressedBytes: 20_000 },
    make: (r) => rawArchive(rawEntry({ name: 'noise' }, r.bytes(r.int(30_000, 90_000)))),
  },
  {
    name: 'too many entries',
    rules: ['entries'],
    limits: { entries: 100 },
    make: (r) =>
      r.next() < 0.5
        ? rawArchive(...Array.from({ length: r.int(101, 150) }, (_, i) => rawEntry({ name: `n${i}` })))
        : rawArchive(...Array.from({ length: 60 }, (_, i) => rawEntry({ name: `${i}/a/b/c` }))),
  },
  {
    name: 'path too long or deep',
    rules: ['path_length', 'path_depth'],
    make: (r) =>
      around(
        r,
        rawPax([
          ['path', r.next() < 0.5 ? `${r.word()}/`.repeat(r.int(65, 90)) + 'x' : r.word(r.int(1025, 4000))],
        ]),
        ok(r),
      ),
  },
  {
    name: 'headers too large or damaged',
    rules: ['header_size', 'bad_header'],
    make: (r) =>
      around(
        r,
        r.pick([
          rawPax([['comment', 'x'.repeat(r.int(65_530, 200_000))]]),
          rawEntry({ name: 'L', type: 'L' }, Buffer.alloc(70_000, 0x61)),
          Buffer.concat(Array.from({ length: 30 }, () => rawPax([['comment', 'y'.repeat(4000)]], 'g'))),
          rawEntry(
            { name: 'P', type: 'x' },
            r.pick(['99 path=a\n', 'path=a\n', '0 path=a\n', '10 path=abc', ' 9 path=a\n']),
          ),
          rawEntry({ name: 'P', type: 'x' }, paxRecord('path', 'a').subarray(0, -1)),
          rawHeader({ name: 'c', checksum: 1 }),
          rawHeader({ name: 'm', magic: r.pick(['\0\0\0\0\0\0\0\0', 'ustar\x0099', 'tar']) }),
        ]),
        ok(r),
      ),
  },
];
