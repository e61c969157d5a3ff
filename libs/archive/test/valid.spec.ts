import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import {
  archiveCheck,
  archiveLimitsFromEnv,
  ArchiveRefused,
  checkArchive,
  extractArchive,
  packFolder,
} from '../src/index.js';
import { Random } from './random.js';
import { rawArchive, rawEntry, rawPax } from './raw-tar.js';

const run = promisify(execFile);
let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'nebo-archive-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

/** Everything in a folder: mode class, content hash or link target by path. */
async function snapshot(dir: string, prefix = ''): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of await readdir(join(dir, prefix))) {
    const path = prefix ? `${prefix}/${name}` : name;
    const info = await lstat(join(dir, path));
    if (info.isDirectory()) Object.assign(found, { [`${path}/`]: 'dir' }, await snapshot(dir, path));
    else if (info.isSymbolicLink()) found[path] = `-> ${await readlink(join(dir, path))}`;
    else {
      const hash = createHash('sha256')
        .update(await readFile(join(dir, path)))
        .digest('hex');
      found[path] = `${(info.mode & 0o7777).toString(8)} ${hash}`;
    }
  }
  return found;
}

async function bytesOf(stream: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** A folder of files with all kinds of names, made from one number, in an order that depends on `order`. */
async function randomFolder(dir: string, seed: number, order: number): Promise<void> {
  const random = new Random(seed);
  const names = [
    'plain.txt',
    'пример/файл.md',
    'a-b',
    'a/b',
    `${'long-name-'.repeat(17)}.txt`,
    '日本/語.txt',
    'empty',
    'bin/run.sh',
    `${'deep/'.repeat(20)}x`,
  ];
  for (let i = random.int(0, 20); i > 0; i--) names.push(`r/${random.word()}-${i}/${random.word()}.js`);
  const bodies = new Map(
    names.map((name) => [name, name === 'empty' ? Buffer.alloc(0) : random.bytes(random.int(0, 3000))]),
  );
  const shuffle = new Random(order);
  const shuffled = [...names].map((name) => [shuffle.next(), name] as const).sort((a, b) => a[0] - b[0]);
  await mkdir(dir);
  for (const [, name] of shuffled) {
    await mkdir(join(dir, name, '..'), { recursive: true });
    await writeFile(join(dir, name), bodies.get(name)!);
  }
  await chmod(join(dir, 'bin/run.sh'), 0o755);
  await symlink('../plain.txt', join(dir, 'bin/link'));
  await symlink('bin', join(dir, 'tools'));
}

describe('packFolder and extractArchive', () => {
  it('give back every byte, mode class and link, and the same hash whatever order the files were made in', async () => {
    for (let seed = 1; seed <= 12; seed++) {
      const [one, two, out] = ['one', 'two', 'out'].map((name) => join(root, `${name}${seed}`)) as [
        string,
        string,
        string,
      ];
      await randomFolder(one, seed, seed);
      await randomFolder(two, seed, seed + 100);
      const first = await packFolder(one);
      const bytes = await bytesOf(first.stream);
      const second = await packFolder(two);
      expect((await bytesOf(second.stream)).equals(bytes)).toBe(true);
      const digest = await first.digest;
      expect(digest).toEqual(await second.digest);
      expect(digest).toEqual({
        sha256: createHash('sha256').update(bytes).digest('hex'),
        bytes: bytes.length,
      });
      const summary = await extractArchive(Readable.from([bytes]), out);
      expect(summary).toMatchObject({ ...digest, entries: first.manifest.entries.length });
      expect(await snapshot(out)).toEqual(await snapshot(one));
    }
  });

  it('write a header without time or system, names in byte order', async () => {
    await randomFolder(join(root, 'in'), 3, 3);
    const packed = await packFolder(join(root, 'in'));
    const bytes = await bytesOf(packed.stream);
    expect([...bytes.subarray(0, 10)]).toEqual([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    const paths = packed.manifest.entries.map((entry) => Buffer.from(entry.path));
    expect(paths).toEqual([...paths].sort(Buffer.compare));
  });

  it('agree with the system tar in both directions', async () => {
    await randomFolder(join(root, 'in'), 5, 5);
    const { stream } = await packFolder(join(root, 'in'));
    await pipeline(stream, createWriteStream(join(root, 'ours.tgz')));
    await mkdir(join(root, 'theirs'));
    await run('tar', ['xzf', join(root, 'ours.tgz'), '-C', join(root, 'theirs')]);
    expect(await snapshot(join(root, 'theirs'))).toEqual(await snapshot(join(root, 'in')));
    for (const format of ['gnu', 'pax', 'ustar']) {
      if (format === 'ustar') await rm(join(root, 'in', `${'long-name-'.repeat(17)}.txt`));
      await run('tar', [
        `--format=${format}`,
        '-czf',
        join(root, `${format}.tgz`),
        '-C',
        join(root, 'in'),
        '.',
      ]);
      await extractArchive(join(root, `${format}.tgz`), join(root, format));
      expect(await snapshot(join(root, format))).toEqual(await snapshot(join(root, 'in')));
    }
  });

  it('take hard links, git’s global header and stray "./"', async () => {
    const bytes = rawArchive(
      rawPax([['comment', '0123456789abcdef']], 'g'),
      rawEntry({ name: './', type: '5' }),
      rawEntry({ name: './a//b.txt' }, 'same bytes'),
      rawEntry({ name: 'c.txt', type: '1', linkname: 'a/b.txt' }),
      rawEntry({ name: 'bin/tool', mode: 0o100755 }, '#!'),
    );
    const summary = await extractArchive(Readable.from([bytes]), join(root, 'out'));
    expect(summary.files).toMatchObject({
      files: 2,
      directories: 0,
      hardlinks: 1,
      topLevel: ['a', 'c.txt', 'bin'],
    });
    expect(await readFile(join(root, 'out/c.txt'), 'utf8')).toBe('same bytes');
    expect((await lstat(join(root, 'out/bin/tool'))).mode & 0o777).toBe(0o755);
  });

  it('refuse a folder that exists and leave it alone', async () => {
    await mkdir(join(root, 'out'));
    await writeFile(join(root, 'out/mine'), 'x');
    await expect(
      extractArchive(Readable.from([rawArchive(rawEntry({}, 'x'))]), join(root, 'out')),
    ).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readdir(join(root, 'out'))).toEqual(['mine']);
  });

  it('leave nothing when aborted', async () => {
    const stop = new AbortController();
    const slow = new PassThrough();
    slow.write(
      rawArchive(
        rawEntry({ name: 'a' }, Buffer.alloc(100_000, 1)),
        rawEntry({ name: 'b' }, new Random(1).bytes(60_000)),
      ).subarray(0, 30_000),
    );
    const work = extractArchive(slow, join(root, 'out'), { signal: stop.signal });
    setTimeout(() => {
      stop.abort(new Error('enough'));
      slow.end(Buffer.alloc(40_000, 7));
    }, 50);
    await expect(work).rejects.toThrow();
    expect(await readdir(root)).toEqual([]);
  });
});

describe('what packFolder leaves out', () => {
  const files = async (list: string[], extra: Record<string, string> = {}) => {
    const dir = join(root, 'src');
    for (const name of [...list, ...Object.keys(extra)]) {
      await mkdir(join(dir, name, '..'), { recursive: true });
      await writeFile(join(dir, name), extra[name] ?? 'x');
    }
    return dir;
  };
  const names = async (dir: string, options = {}) => {
    const { manifest, stream } = await packFolder(dir, options);
    stream.destroy();
    return manifest.entries.filter((entry) => entry.type !== 'directory').map((entry) => entry.path);
  };

  it('always: .git, .nebo*, node_modules, .env except examples', async () => {
    const dir = await files([
      '.git/config',
      'sub/.git',
      '.nebo/app.json',
      'node_modules/a.js',
      'x/node_modules/b.js',
      '.env',
      'x/.env.local',
      '.env.example',
      '.env.production.sample',
      '.envrc',
      'nebo.json',
      'index.html',
    ]);
    expect(await names(dir)).toEqual([
      '.env.example',
      '.env.production.sample',
      '.envrc',
      'index.html',
      'nebo.json',
    ]);
    expect(await names(dir, { ignoreRules: 'none' })).toHaveLength(12);
  });

  it('.gitignore, unless told otherwise, and .neboignore instead of it', async () => {
    const dir = await files(['a.log', 'keep.log', 'dist/out.js', 'src/main.js'], {
      '.gitignore': '*.log\n!keep.log\n/dist/\n',
    });
    expect(await names(dir)).toEqual(['.gitignore', 'keep.log', 'src/main.js']);
    expect(await names(dir, { gitignore: false })).toEqual([
      '.gitignore',
      'a.log',
      'dist/out.js',
      'keep.log',
      'src/main.js',
    ]);
    await writeFile(join(dir, '.neboignore'), 'src\n');
    const { manifest, stream } = await packFolder(dir);
    stream.destroy();
    expect(manifest.ruledBy).toBe('.neboignore');
    expect(manifest.entries.map((entry) => entry.path)).toEqual([
      '.gitignore',
      'a.log',
      'dist/',
      'dist/out.js',
      'keep.log',
    ]);
  });

  it('links that lead out, with a warning; those inside become relative and direct', async () => {
    const dir = await files(['real/deep/file.txt', 'top.txt']);
    await symlink('/etc/passwd', join(dir, 'out1'));
    await symlink('../../x', join(dir, 'real/out2'));
    await symlink(join(dir, 'top.txt'), join(dir, 'real/absolute'));
    await symlink('real', join(dir, 'alias'));
    await symlink('alias/deep/file.txt', join(dir, 'through'));
    await symlink('nowhere', join(dir, 'dangling'));
    const { manifest, stream } = await packFolder(dir);
    const targets = Object.fromEntries(
      manifest.entries.filter((e) => e.type === 'symlink').map((e) => [e.path, e.target]),
    );
    expect(targets).toEqual({
      alias: 'real',
      dangling: 'nowhere',
      'real/absolute': '../top.txt',
      through: 'real/deep/file.txt',
    });
    expect(manifest.warnings.map((warning) => warning.path).sort()).toEqual(['out1', 'real/out2']);
    await expect(checkArchive(stream)).resolves.toMatchObject({ files: { symlinks: 4 } });
  });

  it('and fails before sending what the server would refuse', async () => {
    const dir = await files(['Readme', 'README']);
    await expect(packFolder(dir)).rejects.toMatchObject({ rule: 'path_collision' });
    await expect(packFolder(dir, { limits: { foldCollisions: false, entries: 1 } })).rejects.toMatchObject({
      rule: 'entries',
      status: 413,
    });
  });

  it('and fails when a file changes while it is packed', async () => {
    const dir = await files(['a.txt']);
    const { stream, digest } = await packFolder(dir);
    await writeFile(join(dir, 'a.txt'), 'longer than before');
    await expect(bytesOf(stream)).rejects.toThrow('a.txt changed while it was packed');
    await expect(digest).rejects.toThrow('changed');
  });
});

describe('archiveCheck as a stage of an upload', () => {
  it('passes every byte on and knows the summary', async () => {
    const bytes = rawArchive(rawEntry({ name: 'a' }, new Random(2).bytes(200_000)));
    const check = archiveCheck();
    await pipeline(
      Readable.from([bytes.subarray(0, 1000), bytes.subarray(1000)]),
      check.stream,
      createWriteStream(join(root, 'kept')),
    );
    expect((await readFile(join(root, 'kept'))).equals(bytes)).toBe(true);
    expect((await check.result).sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
  });

  it('fails the pipeline before the sink has ended', async () => {
    const bytes = Buffer.concat([rawArchive(rawEntry({ name: 'a' }, 'x')), Buffer.from('tail')]);
    const check = archiveCheck();
    const sink = createWriteStream(join(root, 'kept'));
    await expect(pipeline(Readable.from([bytes]), check.stream, sink)).rejects.toBeInstanceOf(ArchiveRefused);
    expect(sink.writableFinished).toBe(false);
  });

  it('copies to a sink while it checks and leaves a refused input open', async () => {
    const input = new PassThrough();
    input.write('not gzip at all');
    const kept = new PassThrough();
    await expect(checkArchive(input, { copyTo: kept })).rejects.toMatchObject({
      rule: 'not_gzip',
      status: 422,
    });
    expect(input.destroyed).toBe(false);
    expect(String(kept.read())).toBe('not gzip at all');
  });

  it('refuses an upload that stands still', async () => {
    const input = new PassThrough();
    input.write(rawArchive(rawEntry({}, 'x')).subarray(0, 30));
    await expect(checkArchive(input, { limits: { idleMs: 60 } })).rejects.toMatchObject({ rule: 'stalled' });
  });

  it('hands on a broken connection as it is', async () => {
    const input = new PassThrough();
    input.write(rawArchive(rawEntry({}, 'x')).subarray(0, 30));
    setTimeout(() => input.destroy(new Error('ECONNRESET')), 20);
    await expect(checkArchive(input)).rejects.toThrow('ECONNRESET');
  });

  it('needs little memory for a large archive', async () => {
    const noise = new Random(9).bytes(1 << 16);
    const file = join(root, 'large.tgz');
    const big = rawArchive(
      ...Array.from({ length: 40 }, (_, i) =>
        rawEntry({ name: `n${i}` }, Buffer.concat(Array.from({ length: 32 }, () => noise))),
      ),
    );
    await writeFile(file, big);
    const expanded = gunzipSync(big).length;
    const before = process.memoryUsage().rss;
    const summary = await checkArchive(createReadStream(file), { limits: { ratio: 10_000 } });
    expect(summary.expandedBytes).toBe(expanded);
    expect(process.memoryUsage().rss - before).toBeLessThan(150 * 1024 * 1024);
  });
});

describe('settings', () => {
  it('come from the environment and are checked', () => {
    expect(archiveLimitsFromEnv({ NEBO_ARCHIVE_MAX_ENTRIES: '7' }).entries).toBe(7);
    expect(() => archiveLimitsFromEnv({ NEBO_ARCHIVE_IDLE_MS: '-1' })).toThrow('NEBO_ARCHIVE_IDLE_MS');
  });
});
