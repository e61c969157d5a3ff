import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { applyLayer, LayerBudget, LayerRefused, RootTree } from '../src/index.js';
import { rawHeader, type RawHeader } from './raw-tar.js';

type Entry = RawHeader & { name: string; body?: string };

/** A tar of entries that nothing checks. */
function tar(...entries: Entry[]): Buffer {
  const parts = entries.map(({ body = '', ...header }) => {
    const bytes = Buffer.from(body);
    return Buffer.concat([
      rawHeader({ size: bytes.length, ...header }),
      bytes,
      Buffer.alloc((512 - (bytes.length % 512)) % 512),
    ]);
  });
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}
const folder = (name: string, mode = 0o755): Entry => ({ name, type: '5', mode });
const file = (name: string, body = name, mode = 0o644): Entry => ({ name, body, mode });
const symlink = (name: string, linkname: string): Entry => ({ name, type: '2', linkname });
const hardlink = (name: string, linkname: string): Entry => ({ name, type: '1', linkname });
const gone = (name: string): Entry => ({ name });

describe('layers of images', () => {
  let home: string;
  let root: string;
  let tree: RootTree;

  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'nebo-layers-'));
    root = join(home, 'root');
    await mkdir(root);
    await mkdir(join(home, 'outside'));
    await writeFile(join(home, 'outside/secret'), 'secret');
    tree = new RootTree(root, { entries: 200 }, null);
  });
  afterEach(() => rm(home, { recursive: true, force: true }));

  const budget = () => new LayerBudget(20e6, 200, 1e6);
  const apply = (bytes: Buffer, of = budget()) =>
    applyLayer(Readable.from([bytes]), tree, of, new AbortController().signal);
  const layers = async (...tars: Buffer[]) => {
    for (const each of tars) await apply(each);
  };
  const names = async () => (await readdir(root, { recursive: true })).sort();
  const text = (path: string) => readFile(join(root, path), 'utf8');
  const modeOf = async (path: string) => ((await stat(join(root, path))).mode & 0o7777).toString(8);

  it('gzip of one member and of several, zstd and plain tar: the same tree and the same inner hash', async () => {
    const bytes = tar(folder('etc/'), file('etc/hosts', 'x'.repeat(70_000)));
    const half = bytes.length >> 1;
    const members = Buffer.concat([gzipSync(bytes.subarray(0, half)), gzipSync(bytes.subarray(half))]);
    const found = new Set<string>();
    for (const packed of [gzipSync(bytes), members, zstdCompressSync(bytes), bytes]) {
      const applied = await apply(packed);
      expect(applied).toMatchObject({ bytes: packed.length, expandedBytes: bytes.length });
      found.add(applied.diffId);
      expect(await text('etc/hosts')).toHaveLength(70_000);
    }
    expect(found.size).toBe(1);
  });

  it('later layers replace files, folders, links and kinds', async () => {
    await layers(
      tar(folder('a/'), file('a/one'), file('b'), symlink('c', 'a'), folder('d/'), file('d/deep/file')),
      tar(file('a/one', 'new'), folder('b/'), file('b/in'), file('c', 'now a file'), file('d', 'now a file')),
    );
    expect(await names()).toEqual(['a', 'a/one', 'b', 'b/in', 'c', 'd']);
    expect([await text('a/one'), await text('c'), await text('d')]).toEqual([
      'new',
      'now a file',
      'now a file',
    ]);
  });

  it('whiteouts take away what lower layers have, opaque ones all of it, and nothing of their own layer', async () => {
    await layers(
      tar(
        folder('a/'),
        file('a/one'),
        file('a/two'),
        folder('b/'),
        file('b/old'),
        folder('b/deep/'),
        file('b/deep/old'),
      ),
      tar(
        gone('a/.wh.one'),
        file('b/new'),
        file('b/deep/new'),
        gone('b/.wh..wh..opq'),
        gone('.wh.missing'),
        gone('x/y/.wh.z'),
      ),
      tar(gone('.wh..wh.plnk'), gone('.wh..wh.aufs')),
    );
    expect(await names()).toEqual(['a', 'a/two', 'b', 'b/deep', 'b/deep/new', 'b/new']);
    await layers(tar(file('a/two', 'mine'), gone('a/.wh.two')));
    expect(await text('a/two')).toBe('mine');
  });

  it('links lead on inside the image, as its users see it', async () => {
    await layers(
      tar(
        folder('usr/'),
        folder('usr/lib/'),
        symlink('lib', 'usr/lib'),
        symlink('run', '/var/run'),
        folder('var/'),
      ),
      tar(
        file('lib/x', 'in usr'),
        file('run/pid', 'made'),
        hardlink('usr/y', '/lib/x'),
        hardlink('z', './lib/x'),
      ),
    );
    expect(await text('usr/lib/x')).toBe('in usr');
    expect(await text('var/run/pid')).toBe('made');
    expect([await text('usr/y'), await text('z')]).toEqual(['in usr', 'in usr']);
    expect((await tree.find('/lib/x'))?.path).toBe(join(root, 'usr/lib/x'));
    expect(await tree.find('/lib/none')).toBeNull();
  });

  it('set-uid and set-gid bits are dropped, the sticky bit stays, the group gets the owner’s rights', async () => {
    await layers(
      tar(file('su', 'x', 0o6755), file('key', 'x', 0o600), folder('tmp/', 0o1777), folder('locked/', 0o500)),
    );
    expect([await modeOf('su'), await modeOf('key'), await modeOf('tmp')]).toEqual(['775', '660', '1777']);
    expect(await modeOf('locked')).toBe('770');
  });

  it('devices, pipes and names that are not UTF-8 are left out; names with backslashes and long ones are kept', async () => {
    const long = `${'d'.repeat(120)}/${'e'.repeat(120)}`;
    const longHeader = { name: '././@LongLink', type: 'L', body: `${long}\0` };
    await layers(
      tar(
        { name: 'null', type: '3' },
        { name: 'disk', type: '4' },
        { name: 'pipe', type: '6' },
        { ...file('x'), name: Buffer.from([0x66, 0xff, 0xfe]) as never },
        file('sys\\x2dtem.slice', 'unit'),
        longHeader,
        file('short', 'long'),
      ),
    );
    expect(await names()).toEqual([long.split('/')[0], long, 'sys\\x2dtem.slice'].sort());
    expect(await text(long)).toBe('long');
  });

  describe('hostile', () => {
    const outside = async () => {
      expect(
        (await readdir(home, { recursive: true })).filter((name) => !name.startsWith('root')).sort(),
      ).toEqual(['outside', 'outside/secret']);
      expect(await readFile(join(home, 'outside/secret'), 'utf8')).toBe('secret');
    };
    afterEach(outside);

    it.each<[string, Buffer[], RegExp]>([
      ['a way upwards', [tar(file('../outside/secret', 'bad'))], /has a "\.\."/],
      ['a way upwards in the middle', [tar(file('a/../../outside/secret', 'bad'))], /has a "\.\."/],
      ['a hard link upwards', [tar(hardlink('x', '../outside/secret'))], /has a "\.\."/],
      [
        'a hard link to nothing',
        [tar(hardlink('x', '/etc/shadow'))],
        /hard link to a file that is not in the image/,
      ],
      ['a hard link to a folder', [tar(folder('d/'), hardlink('x', 'd'))], /hard link to a file that is not/],
      [
        'a whiteout of the folder itself',
        [tar(folder('d/'), gone('d/.wh..'))],
        /takes away something that is no entry/,
      ],
      ['a whiteout of what is above', [tar(gone('.wh...'))], /takes away something that is no entry/],
      [
        'links in a circle',
        [tar(symlink('a', 'b'), symlink('b', 'a'), file('a/x'))],
        /behind too many links/,
      ],
      ['a file in a file', [tar(file('a'), file('a/b'))], /behind an entry that is no folder/],
      ['a sparse file', [tar({ name: 's', type: 'S' })], /sparse/],
      ['an unknown kind', [tar({ name: 's', type: 'Z' })], /unknown kind/],
      ['a negative size', [tar({ ...file('s'), rawSize: Buffer.alloc(12, 0xff) })], /size that is no size/],
      [
        'more headers than one entry needs',
        [tar({ name: 'p', type: 'x', rawSize: Buffer.from('00010000000\0') })],
        /headers of one entry/,
      ],
      ['a header that is none', [Buffer.alloc(1024, 7)], /damaged, or it holds no tar/],
      ['half a file', [tar(file('a', 'x'.repeat(4_000))).subarray(0, 2_000)], /ends in the middle/],
      ['half a header', [tar(file('a')).subarray(0, 300)], /ends in the middle/],
      [
        'a gzip file that ends early',
        [gzipSync(tar(file('a', 'x'.repeat(9_000)))).subarray(0, 60)],
        /compressed data are damaged/,
      ],
      [
        'a name that is too long',
        [tar(file('n'), { name: 'L', type: 'L', body: 'n'.repeat(300) }, file('x'))],
        /too long/,
      ],
      [
        'too many entries',
        [tar(...Array.from({ length: 201 }, (_, index) => file(`f${index}`)))],
        /more than 200 entries/,
      ],
      [
        'too many folders',
        [tar({ name: 'L', type: 'L', body: 'd/'.repeat(250) }, file('x'))],
        /more than 200 entries/,
      ],
    ])('%s is refused', async (_, tars, why) => {
      const work = layers(...tars);
      await expect(work).rejects.toThrow(LayerRefused);
      await expect(work).rejects.toThrow(why);
    });

    it('a link out of the image, then a write, a folder, a link and a whiteout through it: all stay inside', async () => {
      const away = join(home, 'outside');
      await layers(
        tar(symlink('abs', away), symlink('up', '../../../../outside'), symlink('f', `${away}/secret`)),
        tar(
          file('abs/secret', 'bad'),
          file('up/secret', 'bad'),
          file('f', 'bad'),
          hardlink('h', 'abs/secret'),
        ),
        tar(gone('abs/.wh.secret'), gone('up/.wh..wh..opq'), folder('abs/deep/')),
      );
      expect(await text('f')).toBe('bad');
      expect(await readlink(join(root, 'abs'))).toBe(away);
      expect(await readFile(join(root, away, 'secret'), 'utf8').catch(() => 'gone')).toBe('gone');
      expect((await tree.find('/abs'))?.path).toBe(join(root, away));
    });

    it('a folder that becomes a link between two entries below it', async () => {
      await layers(
        tar(folder('d/'), file('d/a'), symlink('d', join(home, 'outside')), file('d/secret', 'bad')),
      );
      expect(await readFile(join(root, home, 'outside/secret'), 'utf8')).toBe('bad');
    });

    it('a bomb is stopped by its size and by its ratio', async () => {
      const zeros = tar(file('zeros', '\0'.repeat(4_000_000)));
      await expect(apply(gzipSync(zeros))).rejects.toThrow(/more than 200 times its size/);
      await expect(apply(zeros, new LayerBudget(2e6, 1e9, 1e9))).rejects.toThrow(
        /holds more than 2000000 bytes/,
      );
      const together = new LayerBudget(6e6, 1e9, 1e9);
      await apply(zeros, together);
      await expect(apply(zeros, together)).rejects.toThrow(/The image holds more than/);
    });

    it('ends with its signal', async () => {
      const stop = new AbortController();
      stop.abort(new Error('not wanted'));
      await expect(applyLayer(Readable.from([tar(file('a'))]), tree, budget(), stop.signal)).rejects.toThrow(
        'not wanted',
      );
    });
  });
});
