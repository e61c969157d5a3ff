import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { extractArchive } from '@nebo/archive';
import { artifact, type Artifact, Cleanup } from '../../test/kit.js';
import { silentLogger } from '../observe/logger.js';
import { ArtifactStore, type ArtifactStoreOptions } from './artifact-store.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());

async function storeOf(
  all: Artifact[],
  more: Partial<ArtifactStoreOptions> = {},
): Promise<{ store: ArtifactStore; dir: string }> {
  const dir = more.dir ?? (await cleanup.folder());
  const store = new ArtifactStore({
    dir,
    fetch: (sha256) => Promise.resolve(Readable.from([all.find((one) => one.sha256 === sha256)!.body])),
    extract: (file, target) => extractArchive(file, target),
    logger: silentLogger,
    stallMs: 5_000,
    compressBudgetMs: 1_000,
    keepUnused: 0,
    keepMs: 0,
    ...more,
  });
  await store.start();
  cleanup.add(() => store.stop());
  return { store, dir };
}

describe('artifact store', () => {
  it('many who want the same artifact at once cause one download', async () => {
    const one = await artifact({ 'index.html': 'x' });
    let downloads = 0;
    const fetch = (): Promise<Readable> => {
      downloads++;
      return Promise.resolve(Readable.from([one.body]));
    };
    const { store } = await storeOf([one], { fetch });
    const sites = await Promise.all(Array.from({ length: 5 }, () => store.ensure(one.sha256, one.bytes)));
    expect([downloads, new Set(sites).size]).toEqual([1, 1]);
  });

  it('a route that comes back while unused artifacts are looked for keeps its files', async () => {
    const one = await artifact({ 'index.html': 'x' });
    const { store, dir } = await storeOf([one]);
    await store.ensure(one.sha256, one.bytes);
    let asked = 0;
    expect(await store.collect(() => ++asked > 1)).toEqual([]);
    expect(store.site(one.sha256)).toBeDefined();
    expect(await readdir(dir)).toEqual([one.sha256]);
  });

  it('an artifact that is wanted while it is being removed is brought anew', async () => {
    const one = await artifact({ 'index.html': 'x' });
    const { store } = await storeOf([one]);
    await store.ensure(one.sha256, one.bytes);
    for (let i = 0; i < 20; i++) {
      const removing = store.collect(() => false);
      while (store.site(one.sha256)) await new Promise((resolve) => setImmediate(resolve));
      const site = await store.ensure(one.sha256, one.bytes);
      expect(await removing).toEqual([one.sha256]);
      expect((await readdir(join(site.files.get('index.html')!.file, '..'))).sort()).toEqual(['index.html']);
    }
  });

  it('what a running request reads is not removed', async () => {
    const one = await artifact({ 'index.html': 'x' });
    const { store } = await storeOf([one]);
    const site = await store.ensure(one.sha256, one.bytes);
    site.inFlight++;
    expect(await store.collect(() => false)).toEqual([]);
    site.inFlight--;
    expect(await store.collect(() => false)).toEqual([one.sha256]);
  });

  it('a file cut short on disk makes the artifact be fetched again', async () => {
    const one = await artifact({ 'index.html': 'x'.repeat(100) });
    const first = await storeOf([one]);
    const site = await first.store.ensure(one.sha256, one.bytes);
    await first.store.stop();
    await writeFile(site.files.get('index.html')!.file, 'x');
    const second = await storeOf([one], { dir: first.dir });
    expect(await second.store.open(one.sha256)).toBeNull();
    expect((await second.store.ensure(one.sha256, one.bytes)).files.get('index.html')!.size).toBe(100);
  });

  it('a download that stalls ends, with nothing left; half-done folders go at start', async () => {
    const one = await artifact({ 'index.html': 'x' });
    for (const fetch of [
      () => new Promise<Readable>(() => undefined),
      () => Promise.resolve(new Readable({ read: () => undefined })),
    ]) {
      const { store, dir } = await storeOf([one], { stallMs: 100, fetch });
      await expect(store.ensure(one.sha256, one.bytes)).rejects.toThrow('stalled');
      expect(await readdir(dir)).toEqual([]);
    }
    const dir = await cleanup.folder();
    await writeFile(join(dir, `part-${one.sha256}-00`), '');
    await writeFile(join(dir, `gone-${one.sha256}-00`), '');
    await storeOf([one], { dir });
    expect(await readdir(dir)).toEqual([]);
  });
});
