import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { ArtifactCache } from '../src/replicas/artifact-cache.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { blobOf } from './sources.js';

describe('ArtifactCache', () => {
  let dir: string;
  let asked = 0;
  const plane = new FakeControlPlane();
  const blobs = {
    get: async (sha256: string) => {
      asked++;
      return Readable.from([plane.blobs.get(sha256) ?? Buffer.from('')]);
    },
    put: async () => undefined,
  };
  const { signal } = new AbortController();
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-cache-'));
    asked = 0;
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  it('fetches once for many who ask at the same time', async () => {
    const { sha256 } = await blobOf(plane, { 'a.txt': 'hello' });
    const cache = new ArtifactCache(dir, 1e9);
    await cache.start();
    const paths = await Promise.all(Array.from({ length: 5 }, () => cache.hold(sha256, blobs, signal)));
    expect(asked).toBe(1);
    expect(await readFile(join(paths[0]!, 'a.txt'), 'utf8')).toBe('hello');
  });

  it('refuses bytes with another hash and keeps nothing', async () => {
    const { sha256 } = await blobOf(plane, { 'a.txt': 'one' });
    const other = await blobOf(plane, { 'a.txt': 'two' });
    plane.blobs.set(sha256, plane.blobs.get(other.sha256)!);
    const cache = new ArtifactCache(dir, 1e9);
    await expect(cache.hold(sha256, blobs, signal)).rejects.toThrow('came with other bytes');
    expect(await readdir(dir)).toEqual([]);
  });

  it('drops the longest unused when too large, never one that is held', async () => {
    const all = await Promise.all(
      ['x', 'y', 'z'].map((name) => blobOf(plane, { [name]: name.repeat(50_000) })),
    );
    const [x, y, z] = all.map((blob) => blob.sha256) as [string, string, string];
    const cache = new ArtifactCache(dir, 120_000);
    await cache.hold(x, blobs, signal);
    await cache.hold(y, blobs, signal);
    cache.release(y);
    await cache.hold(z, blobs, signal);
    const kept = (await readdir(dir)).filter((name) => !name.endsWith('.bytes')).sort();
    expect(kept).toEqual([x, z].sort());
  });

  it('does not trust what an earlier agent left half made', async () => {
    const { sha256 } = await blobOf(plane, { 'a.txt': 'whole' });
    await mkdir(join(dir, `${sha256}.part`), { recursive: true });
    await mkdir(join(dir, sha256));
    const cache = new ArtifactCache(dir, 1e9);
    await cache.start();
    const path = await cache.hold(sha256, blobs, signal);
    expect(await readdir(path)).toEqual(['a.txt']);
  });
});
