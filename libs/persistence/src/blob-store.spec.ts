import { createHash, randomBytes } from 'node:crypto';
import { lstat, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { BlobMismatch, BlobNotFound, FolderBlobStore, readSmallBlob } from './blob-store.js';

const sha = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const read = async (stream: Readable) => {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts);
};

describe('FolderBlobStore', () => {
  let root: string;
  let store: FolderBlobStore;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-blobs-'));
    store = new FolderBlobStore(join(root, 'blobs'));
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  it('stores a stream under its hash and gives it back, whole or in part', async () => {
    const bytes = randomBytes(300_000);
    const blob = await store.put(
      Readable.from([bytes.subarray(0, 70_000), bytes.subarray(70_000)]),
      sha(bytes),
    );
    expect(blob).toEqual({ sha256: sha(bytes), bytes: 300_000 });
    expect((await read(await store.get(blob.sha256))).equals(bytes)).toBe(true);
    expect(await read(await store.get(blob.sha256, { start: 10, end: 19 }))).toEqual(bytes.subarray(10, 20));
    expect(await read(await store.get(blob.sha256, { start: 299_990 }))).toEqual(bytes.subarray(299_990));
    expect(await store.has(blob.sha256)).toBe(300_000);
    expect(await readFile(await store.path(blob.sha256))).toEqual(bytes);
  });

  it('fans out over two levels, files 0600, folders 0700', async () => {
    const { sha256 } = await store.put(Buffer.from('x'));
    const folder = join(root, 'blobs', sha256.slice(0, 2), sha256.slice(2, 4));
    expect((await stat(join(folder, sha256))).mode & 0o777).toBe(0o600);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
  });

  it('keeps one copy of equal bytes put at the same time', async () => {
    const bytes = randomBytes(50_000);
    const all = await Promise.all(Array.from({ length: 8 }, () => store.put(Readable.from([bytes]))));
    expect(new Set(all.map((blob) => blob.sha256)).size).toBe(1);
    const listed = [];
    for await (const blob of store.list()) listed.push(blob);
    expect(listed).toMatchObject([{ sha256: sha(bytes), bytes: 50_000 }]);
    expect(await readdir(join(root, 'blobs/tmp'))).toEqual([]);
  });

  it('refuses bytes with another hash and keeps nothing of them', async () => {
    await expect(store.put(Buffer.from('a'), sha(Buffer.from('b')))).rejects.toBeInstanceOf(BlobMismatch);
    expect(await readdir(join(root, 'blobs'))).toEqual(['tmp']);
    expect(await readdir(join(root, 'blobs/tmp'))).toEqual([]);
  });

  it('keeps nothing of a source that breaks off', async () => {
    const source = new PassThrough();
    source.write('half');
    const put = store.put(source);
    setTimeout(() => source.destroy(new Error('gone')), 10);
    await expect(put).rejects.toThrow('gone');
    expect(await readdir(join(root, 'blobs/tmp'))).toEqual([]);
  });

  it('keeps nothing of a source that breaks off before it is read', async () => {
    const source = new PassThrough();
    const put = store.put(source);
    source.destroy(new Error('gone'));
    await expect(put).rejects.toThrow('gone');
    expect(await readdir(join(root, 'blobs/tmp'))).toEqual([]);
  });

  it('deletes, once', async () => {
    const { sha256 } = await store.put(Buffer.from('x'));
    expect(await store.delete(sha256)).toBe(true);
    expect(await store.delete(sha256)).toBe(false);
    expect(await store.has(sha256)).toBeNull();
    await expect(store.get(sha256)).rejects.toBeInstanceOf(BlobNotFound);
    await expect(store.path(sha256)).rejects.toBeInstanceOf(BlobNotFound);
  });

  it('takes nothing but a hash for a name', async () => {
    await expect(store.get('../../etc/passwd')).rejects.toBeInstanceOf(TypeError);
    await expect(store.put(Buffer.from('x'), 'ABC')).rejects.toBeInstanceOf(TypeError);
  });

  it('sweeps what a crash left, but not what is being written', async () => {
    await store.put(Buffer.from('x'));
    const old = join(root, 'blobs/tmp/old');
    await writeFile(old, 'half');
    await writeFile(join(root, 'blobs/tmp/fresh'), 'half');
    const past = new Date(Date.now() - 7_200_000);
    await utimes(old, past, past);
    expect(await store.sweep()).toBe(1);
    expect(await readdir(join(root, 'blobs/tmp'))).toEqual(['fresh']);
  });

  it('renews the time of a blob that is put again', async () => {
    const { sha256 } = await store.put(Buffer.from('x'));
    const path = await store.path(sha256);
    const past = new Date(Date.now() - 90_000_000);
    await utimes(path, past, past);
    await store.put(Buffer.from('x'));
    expect(Date.now() - (await lstat(path)).mtimeMs).toBeLessThan(60_000);
  });

  it('reads a small blob at once and refuses a large one', async () => {
    const { sha256 } = await store.put(Buffer.from('small'));
    expect(String(await readSmallBlob(store, sha256, 10))).toBe('small');
    await expect(readSmallBlob(store, sha256, 2)).rejects.toBeInstanceOf(RangeError);
  });
});
