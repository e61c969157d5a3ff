import { type ArchiveLimits, type ArchiveRule } from '../src/index.js';
import { type Random } from './random.js';
import { rawArchive, rawEntry, rawHeader, rawPax } from './raw-tar.js';

/** One family of hostile archives: makes the bytes of a mutation and says which rules may refuse it. */
export interface Family {
  name: string;
  rules: readonly ArchiveRule[];
  limits?: Partial<ArchiveLimits>;
  make(random: Random): Buffer;
}

/** A good entry. */
export const ok = (random: Random) =>
  rawEntry({ name: `${random.word()}-ok.txt` }, random.word(random.int(0, 900)));
/** Good entries before and after the bad one, so that a late refusal would leave files. */
export const around = (random: Random, ...bad: Buffer[]) => {
  const before = Array.from({ length: random.int(0, 3) }, (_, i) =>
    rawEntry({ name: `before${i}/${random.word()}` }, 'x'),
  );
  const after = Array.from({ length: random.int(0, 2) }, (_, i) =>
    rawEntry({ name: `after${i}/${random.word()}` }, 'x'),
  );
  return rawArchive(...before, ...bad, ...after);
};
const up = (random: Random) => '../'.repeat(random.int(1, 6));
const base256 = (...bytes: number[]) => Buffer.from([...bytes, ...Array<number>(12 - bytes.length).fill(0)]);

/** Families about single entries. */
export const entryFamilies: readonly Family[] = [
  {
    name: 'absolute path',
    rules: ['path_absolute'],
    make: (r) =>
      around(
        r,
        rawEntry({ name: `${r.pick(['/', '//', '///'])}${r.pick(['tmp', 'etc'])}/nebo-${r.word()}` }, 'x'),
      ),
  },
  {
    name: 'drive path',
    rules: ['path_absolute'],
    make: (r) =>
      around(r, rawEntry({ name: `${r.pick(['C', 'd', 'Z'])}:${r.pick(['', '/'])}${r.word()}` }, 'x')),
  },
  {
    name: 'parent path',
    rules: ['path_parent'],
    make: (r) =>
      around(
        r,
        rawEntry(
          { name: r.pick([`${up(r)}${r.word()}`, `a/b/${up(r)}${r.word()}`, 'a/..', `./${up(r)}x`]) },
          'x',
        ),
      ),
  },
  {
    name: 'parent path in pax',
    rules: ['path_parent', 'path_absolute'],
    make: (r) => around(r, rawPax([['path', `${r.pick([up(r), 'x/../../', '/tmp/'])}${r.word()}`]]), ok(r)),
  },
  {
    name: 'parent path in a GNU long name',
    rules: ['path_parent', 'path_absolute'],
    make: (r) =>
      around(
        r,
        rawEntry(
          { name: '././@LongLink', type: 'L', magic: 'ustar  \0' },
          `${r.pick([up(r), '/'])}${r.word()}\0`,
        ),
        ok(r),
      ),
  },
  {
    name: 'backslash or control in path',
    rules: ['path_control'],
    make: (r) =>
      around(
        r,
        rawEntry({ name: `a${r.pick(['\\', '\n', '\r', '\t', '\x1b', '\x7f', '\u0085'])}${r.word()}` }, 'x'),
      ),
  },
  {
    name: 'NUL in name',
    rules: ['path_control'],
    make: (r) =>
      r.next() < 0.5
        ? around(r, rawEntry({ name: `${r.word()}\0${r.word()}` }, 'x'))
        : around(r, rawPax([['path', `${r.word()}\0${r.word()}`]]), ok(r)),
  },
  {
    name: 'name that is not UTF-8',
    rules: ['path_encoding'],
    make: (r) =>
      around(
        r,
        rawEntry(
          { name: Buffer.concat([Buffer.from(r.word()), Buffer.from([r.pick([0xff, 0xc0, 0xe2, 0xed])])]) },
          'x',
        ),
      ),
  },
  {
    name: 'symlink out',
    rules: ['link_outside'],
    make: (r) =>
      around(
        r,
        rawEntry({
          name: `d/${r.word()}`,
          type: '2',
          linkname: r.pick(['/etc/passwd', `../../${r.word()}`, 'x/../../../y', 'C:/x', '../..']),
        }),
      ),
  },
  {
    name: 'symlink chain',
    rules: ['path_through_link', 'link_through_link', 'link_outside'],
    make: (r) => {
      const chain = [
        rawEntry({ name: 'a', type: '2', linkname: 'd/e' }),
        rawEntry({ name: 'b', type: '2', linkname: `a/${r.pick(['..', '../..', 'x'])}` }),
      ];
      if (r.next() < 0.5) chain.reverse();
      return around(r, ...chain, rawEntry({ name: `b/${r.word()}` }, 'x'));
    },
  },
  {
    name: 'file behind a symlink',
    rules: ['path_through_link', 'duplicate_path'],
    make: (r) => {
      const pair = [
        rawEntry({ name: 'd', type: '2', linkname: r.pick(['.', 'e', 'e/f']) }),
        rawEntry({ name: `d/${r.word()}` }, 'x'),
      ];
      if (r.next() < 0.5) pair.reverse();
      return around(r, ...pair);
    },
  },
  {
    name: 'hard link out',
    rules: ['link_outside'],
    make: (r) =>
      around(
        r,
        rawEntry({
          name: r.word(),
          type: '1',
          linkname: r.pick(['/etc/passwd', `${up(r)}etc/shadow`, 'a/../../x']),
        }),
      ),
  },
  {
    name: 'hard link through or to a symlink, or to nothing',
    rules: ['link_through_link', 'link_target'],
    make: (r) =>
      around(
        r,
        rawEntry({ name: 'l', type: '2', linkname: 'd' }),
        rawEntry({ name: 'd', type: '5' }),
        rawEntry({ name: 'h', type: '1', linkname: r.pick(['l/x', 'l', 'd', 'nothing', 'h']) }),
      ),
  },
  {
    name: 'device, pipe, unknown type',
    rules: ['entry_type'],
    make: (r) =>
      around(
        r,
        rawEntry({ name: r.word(), type: r.pick(['3', '4', '6', '7', 'A', 's', 'D', 'M', 'V', 'N', '8']) }),
      ),
  },
  {
    name: 'duplicate path',
    rules: ['duplicate_path'],
    make: (r) => {
      const name = r.pick(['same', 'a/same']);
      const again = r.pick([name, `./${name}`, name.replace('/', '//')]);
      return around(
        r,
        rawEntry({ name }, 'one'),
        rawEntry({ name: again, type: r.pick(['0', '5', '2']), linkname: 'zz' }),
      );
    },
  },
  {
    name: 'case or Unicode collision',
    rules: ['path_collision'],
    make: (r) => {
      const [one, two] = r.pick([
        ['Readme', 'README'],
        ['\u00e9', 'e\u0301'],
        ['stra\u00dfe', 'STRASSE'],
        ['Dir/a', 'dir/b'],
        ['\ufb01x', 'fix'],
      ] as const);
      return around(r, rawEntry({ name: one }, 'x'), rawEntry({ name: two }, 'y'));
    },
  },
  {
    name: 'file used as a folder',
    rules: ['path_through_file', 'duplicate_path'],
    make: (r) => {
      const pair = [rawEntry({ name: 'f' }, 'x'), rawEntry({ name: `f/${r.word()}` }, 'x')];
      if (r.next() < 0.5) pair.reverse();
      return around(r, ...pair);
    },
  },
  {
    name: 'set-uid and set-gid',
    rules: ['set_id_bits'],
    make: (r) =>
      around(
        r,
        rawEntry({
          name: r.word(),
          mode: r.pick([0o4755, 0o2755, 0o6755, 0o104755]),
          type: r.pick(['0', '5']),
        }),
      ),
  },
  {
    name: 'override conflicts',
    rules: ['path_override'],
    make: (r) =>
      around(
        r,
        ...r.pick([
          [
            rawPax([
              ['path', 'a'],
              ['path', 'b'],
            ]),
            ok(r),
          ],
          [rawPax([['path', 'a']]), rawPax([['path', 'b']]), ok(r)],
          [rawEntry({ name: 'L', type: 'L' }, 'one\0'), rawPax([['path', 'two']]), ok(r)],
          [rawEntry({ name: 'L', type: 'L' }, 'one\0'), rawEntry({ name: 'L', type: 'L' }, 'two\0'), ok(r)],
          [rawPax([['path', 'x']], 'g'), ok(r)],
          [rawPax([['path', 'fine']]), rawEntry({ name: '../../evil' }, 'x')],
        ]),
      ),
  },
  {
    name: 'sparse',
    rules: ['sparse'],
    make: (r) =>
      r.next() < 0.5
        ? around(r, rawEntry({ name: r.word(), type: 'S', magic: 'ustar  \0' }, 'x'))
        : around(
            r,
            rawPax([
              [r.pick(['GNU.sparse.major', 'GNU.sparse.map', 'GNU.sparse.realsize', 'SCHILY.realsize']), '1'],
            ]),
            ok(r),
          ),
  },
  {
    name: 'negative, huge or unreadable size',
    rules: ['size_field', 'expanded_size'],
    make: (r) =>
      around(
        r,
        rawHeader({
          name: 'n',
          rawSize: r.pick([
            base256(0xff, 0xff),
            base256(0x80, 0xff, 0xff),
            base256(0x80, 0, 0, 0, 1),
            Buffer.from('77777777777\0'),
            Buffer.from('9999\0'),
            Buffer.from('-1\0'),
            Buffer.from('0x10\0'),
          ]),
        }),
      ),
  },
  {
    name: 'two sizes',
    rules: ['size_field'],
    make: (r) =>
      r.next() < 0.6
        ? around(
            r,
            rawPax([['size', r.pick(['0', '512', '-1', '1e3', '99999999999999'])]]),
            rawEntry({ name: 'two' }, 'x'),
          )
        : around(r, rawEntry({ name: 'dir', type: r.pick(['5', '2', '1']), linkname: 'q' }, 'body')),
  },
];
