import {
  appendFile,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BuildCache, type CacheOwner, type Staged } from '../src/builds/cache/build-cache.js';
import { BuildWork } from '../src/builds/cache/build-work.js';
import { cacheLimits } from '../src/builds/cache/settings.js';
import { type BuildPlan } from '../src/builds/plan.js';
import { SourceTree } from '../src/builds/tree.js';
import { Trash } from '../src/system/trash.js';
import { testLog } from './agent-kit.js';

const MB = 1024 * 1024;
let home: string;
let cache: BuildCache;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'nebo-cache-'));
  cache = await open({});
});
afterEach(() => rm(home, { recursive: true, force: true }));

async function open(limits: { appBytes?: number; totalBytes?: number }): Promise<BuildCache> {
  const made = new BuildCache(
    join(home, 'build-cache'),
    { appBytes: 100 * MB, totalBytes: 1_000 * MB, ...limits },
    new Trash(join(home, 'trash'), testLog),
    testLog,
  );
  await made.start();
  return made;
}

const ann: CacheOwner = { account_id: 'ann', app_id: 'shop' };
let number = 0;

/** What a build would leave: parts by name with so many bytes. */
async function staged(parts: Record<string, number>, keep: string[] = []): Promise<Staged> {
  const dir = join(home, `staged-${number++}`);
  await mkdir(dir);
  for (const [name, bytes] of Object.entries(parts)) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, 'bytes'), Buffer.alloc(bytes, name));
  }
  const facts = Object.keys(parts).map((name) => [name, { key: null, folders: [] as string[] }]);
  return { dir, parts: Object.fromEntries(facts) as Staged['parts'], keep };
}

const partsOf = (owner: CacheOwner, of = cache) =>
  of.use(owner, async (dir) => (dir === null ? [] : (await readdir(dir)).sort()));

describe('the cache of builds', () => {
  it('is what the last successful build left, with the parts that it did not need', async () => {
    await cache.commit(ann, await staged({ npm: MB, next: MB }));
    const kept = await cache.commit(ann, await staged({ next: 2 * MB }, ['npm', 'absent']));
    expect(Object.keys(kept.parts).sort()).toEqual(['next', 'npm']);
    expect(kept.bytes).toBeGreaterThan(3 * MB - 1);
    expect(await partsOf(ann)).toEqual(['next', 'npm']);
    expect(await cache.list()).toEqual([expect.objectContaining({ ...ann, bytes: kept.bytes })]);
    // The data of the first one is gone.
    const [folder] = await readdir(join(home, 'build-cache'));
    expect(await readdir(join(home, 'build-cache', folder!))).toHaveLength(2);
  });

  it('belongs to one app of one account', async () => {
    await cache.commit(ann, await staged({ npm: MB }));
    for (const other of [
      { account_id: 'bob', app_id: 'shop' },
      { account_id: 'ann', app_id: 'blog' },
      { account_id: 'an', app_id: 'nshop' },
    ])
      expect(await partsOf(other)).toEqual([]);
    await cache.remove({ account_id: 'bob', app_id: 'shop' });
    expect(await partsOf(ann)).toEqual(['npm']);
    await cache.remove(ann);
    expect(await partsOf(ann)).toEqual([]);
    expect(await readdir(join(home, 'build-cache'))).toEqual([]);
  });

  it('keeps the quota of an app: the largest parts go and are named', async () => {
    cache = await open({ appBytes: 4 * MB });
    const kept = await cache.commit(ann, await staged({ npm: 3 * MB, next: 2 * MB, go: MB }));
    expect(kept.dropped).toEqual(['npm']);
    expect(await partsOf(ann)).toEqual(['go', 'next']);
    cache = await open({ appBytes: 0 });
    expect((await cache.commit(ann, await staged({ npm: MB }))).bytes).toBe(0);
  });

  it('keeps the quota of the host: the longest unused apps go, and nothing that is not the cache’s', async () => {
    cache = await open({ totalBytes: 5 * MB });
    const owner = (app_id: string) => ({ account_id: 'ann', app_id });
    const foreign = join(home, 'build-cache', 'f'.repeat(32));
    await mkdir(join(foreign, 'data-0123456789abcdef'), { recursive: true });
    await writeFile(
      join(foreign, 'note.json'),
      JSON.stringify({ data: 'data-0123456789abcdef', used_at: 0 }),
    );
    await mkdir(join(home, 'build-cache/somebody'));
    for (const app of ['one', 'two']) await cache.commit(owner(app), await staged({ npm: 2 * MB }));
    await partsOf(owner('one'));
    await cache.commit(owner('three'), await staged({ npm: 2 * MB }));
    expect((await cache.list()).map(({ app_id }) => app_id).sort()).toEqual(['one', 'three']);
    expect(await readdir(join(home, 'build-cache'))).toEqual(
      expect.arrayContaining(['f'.repeat(32), 'somebody']),
    );
  });

  it('after a kill: what no note names goes, a part that is missing is not used', async () => {
    await cache.commit(ann, await staged({ npm: MB, next: MB }));
    const [folder] = await readdir(join(home, 'build-cache'));
    const at = join(home, 'build-cache', folder!);
    await mkdir(join(at, 'data-00000000000000ff/npm'), { recursive: true });
    const [data] = (await readdir(at)).filter((name) => name.startsWith('data-') && !name.endsWith('ff'));
    await rm(join(at, data!, 'npm'), { recursive: true });
    cache = await open({});
    expect((await readdir(at)).sort()).toEqual([data, 'note.json']);
    const work = await ground({}, plan({ tools: ['npm'] }));
    await work.take();
    expect(work.used).toBe(false);
  });

  it('settings must be bytes', () => {
    expect(cacheLimits({ NEBO_BUILD_CACHE_APP: '5', NEBO_BUILD_CACHE_MAX: '' })).toMatchObject({
      appBytes: 5,
    });
    expect(() => cacheLimits({ NEBO_BUILD_CACHE_MAX: '1 GB' })).toThrow(
      /NEBO_BUILD_CACHE_MAX must be a number/,
    );
  });
});

function plan(of: {
  tools?: string[];
  tree?: Record<string, string>;
  key?: string;
  folders?: string[];
}): BuildPlan {
  const tools = (of.tools ?? []).map((name) => ({
    name,
    variables: [`${name}_dir`],
    wanted: 'install' as const,
  }));
  const tree = Object.entries(of.tree ?? {}).map(([name, path]) => ({
    ...{ name, path },
    ...(path.startsWith('node_modules/') ? { inInstalled: true as const } : {}),
  }));
  const installed =
    of.key === undefined
      ? null
      : { key: of.key, folders: () => Promise.resolve(of.folders ?? ['node_modules']) };
  return { caches: { tools, tree, installed } } as unknown as BuildPlan;
}

const grounds: string[] = [];
async function ground(files: Record<string, string>, of: BuildPlan, fresh = false): Promise<BuildWork> {
  const dir = join(home, `run-${number++}`);
  grounds.push(dir);
  await mkdir(join(dir, 'src'), { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(dir, 'src', path, '..'), { recursive: true });
    await writeFile(join(dir, 'src', path), text);
  }
  return new BuildWork(of, {
    ...{ cache, owner: ann, tree: new SourceTree(join(dir, 'src')), dir: join(dir, 'cache') },
    ...{ staging: join(dir, 'kept'), user: null, fresh, say: () => undefined },
  });
}
const last = (...names: string[]) => join(grounds.at(-1)!, ...names);

describe('one build with the cache', () => {
  it('takes what is installed whole while its key is the same, folder by folder, and works on a copy', async () => {
    const of = plan({ tools: ['npm'], key: 'lock-1', folders: ['node_modules', 'apps/web/node_modules'] });
    const first = await ground(
      { 'node_modules/ms/index.js': 'ms', 'apps/web/node_modules/x': 'inner', 'apps/web/a': '' },
      of,
    );
    await first.take();
    await writeFile(last('cache/npm/blob'), 'blob');
    await first.put();

    const second = await ground({ 'apps/web/a': '' }, of);
    await second.take();
    expect(second.installed).toBe(true);
    expect(await readFile(last('src/node_modules/ms/index.js'), 'utf8')).toBe('ms');
    expect(await readFile(last('src/apps/web/node_modules/x'), 'utf8')).toBe('inner');
    // A build that spoils its copy in place, and fails: the cache is as it was.
    await appendFile(last('src/node_modules/ms/index.js'), 'spoiled');

    const third = await ground({}, of);
    await third.take();
    expect(await readFile(last('src/node_modules/ms/index.js'), 'utf8')).toBe('ms');
    await third.put();

    const other = await ground({}, plan({ tools: ['npm'], key: 'lock-2' }));
    await other.take();
    expect(other.installed).toBe(false);
    // What the tool itself keeps still helps.
    expect(await readFile(last('cache/npm/blob'), 'utf8')).toBe('blob');
  });

  it('takes nothing where it was told not to', async () => {
    const of = plan({ tools: ['npm'], tree: { next: '.next/cache' } });
    const first = await ground({ '.next/cache/a': '1' }, of);
    await first.take();
    await first.clearTree();
    expect(await readdir(last('src/.next'))).toEqual([]);
    await first.put();
    const warm = await ground({}, of);
    await warm.take();
    expect(await readFile(last('src/.next/cache/a'), 'utf8')).toBe('1');
    const fresh = await ground({}, of, true);
    await fresh.take();
    expect(fresh.used).toBe(false);
    await expect(lstat(last('src/.next'))).rejects.toThrow('ENOENT');
  });

  it('what tools keep in what is installed comes back with it, as the last build left it', async () => {
    const of = (key: string) => plan({ tree: { 'modules-tmp': 'node_modules/.tmp' }, key });
    const first = await ground({ 'node_modules/ms': 'ms', 'node_modules/.tmp/types': '1' }, of('a'));
    await first.take();
    await first.clearTree();
    await first.put();
    const second = await ground({}, of('a'));
    await second.take();
    expect(await readFile(last('src/node_modules/.tmp/types'), 'utf8')).toBe('1');
    await writeFile(last('src/node_modules/.tmp/types'), '2');
    await writeFile(last('src/node_modules/ms'), 'spoiled');
    await second.clearTree();
    // The artifact of a server is packed now.
    expect(await readdir(last('src/node_modules'))).toEqual(['ms']);
    await second.put();
    const third = await ground({}, of('a'));
    await third.take();
    expect(await readFile(last('src/node_modules/.tmp/types'), 'utf8')).toBe('2');
    expect(await readFile(last('src/node_modules/ms'), 'utf8')).toBe('ms');
    // Where packages are installed anew, their tools begin anew too.
    const other = await ground({}, of('b'));
    await other.take();
    expect(other.used).toBe(false);
    await expect(lstat(last('src/node_modules'))).rejects.toThrow('ENOENT');
  });

  it('links of a build lead neither what is taken nor what is put outside of the tree', async () => {
    const of = plan({ tools: ['npm'], tree: { next: '.next/cache' }, key: 'k' });
    const outside = join(home, 'outside');
    await mkdir(join(outside, 'cache'), { recursive: true });
    await writeFile(join(outside, 'cache/mine'), 'mine');
    const evil = await ground({}, of);
    await evil.take();
    await symlink(outside, last('src/.next'));
    await symlink(join(outside, 'cache'), last('src/node_modules'));
    await rm(last('cache/npm'), { recursive: true });
    await symlink(outside, last('cache/npm'));
    await evil.clearTree();
    expect(await evil.put()).toBeNull();
    expect(await readFile(join(outside, 'cache/mine'), 'utf8')).toBe('mine');

    const good = await ground({ '.next/cache/a': '1' }, of);
    await good.take();
    await good.clearTree();
    await good.put();
    const led = await ground({}, of);
    await symlink(outside, last('src/.next'));
    await led.take();
    expect(await readdir(outside)).toEqual(['cache']);
    expect(await readdir(join(outside, 'cache'))).toEqual(['mine']);
  });
});
