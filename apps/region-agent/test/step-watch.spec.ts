import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, readlink, realpath, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findBusybox } from '@nebo/test-kit';
import { Cgroups, findHierarchy } from '../src/drivers/local/cgroups.js';
import { EngineClient } from '../src/engine/client.js';
import { StepGroups } from '../src/engine/step-groups.js';
import { type Steps, StepWatch, unboundWords } from '../src/engine/step-watch.js';
import { workingContainers } from '../src/engine/working-containers.js';
import { writtenFolders } from '../src/engine/written.js';
import { mountsIn, placeOf, upperOf } from '../src/system/mounts.js';
import { eventually } from './agent-kit.js';
import { EngineDouble } from './engine-double.js';

const hierarchy = await findHierarchy(await readFile('/proc/self/mounts', 'utf8').catch(() => ''));
const busybox = await findBusybox();
const missing =
  process.getuid?.() !== 0
    ? 'needs root'
    : hierarchy === null
      ? 'no control groups can be made here'
      : busybox.reason;
const mebi = 2 ** 20;

describe('mounts', () => {
  const text = [
    '452 439 0:60 / / rw,relatime - overlay overlay rw,lowerdir=l/A,upperdir=/a\\040b/x\\054y/diff,workdir=/w',
    '455 452 0:62 / /data rw,relatime shared:3 - overlay over rw,lowerdir=/l,upperdir=b/upper,workdir=/w',
    '459 452 254:0 /volumes/v\\0401/_data /v rw,relatime - ext4 /dev/vda rw,discard',
    '460 452 254:0 /etc /etc ro,relatime - ext4 /dev/vda rw,discard',
    '461 452 0:61 / /proc rw - proc proc rw',
    'no mount',
  ].join('\n');

  it('are read as the kernel writes them', () => {
    const [root, data, volume, etc] = mountsIn(text);
    expect(mountsIn(text)).toHaveLength(5);
    expect(upperOf(root!)).toBe('/a b/x,y/diff');
    expect(upperOf(data!)).toBe('b/upper');
    expect(upperOf(volume!)).toBeNull();
    expect(volume).toMatchObject({
      device: '254:0',
      root: '/volumes/v 1/_data',
      point: '/v',
      readOnly: false,
    });
    expect(etc!.readOnly).toBe(true);
  });

  it('lie where another one of the same file system shows them', () => {
    const [, , volume] = mountsIn(text);
    const host = mountsIn(
      [
        '1 0 0:5 / /dev rw - devtmpfs d rw',
        '2 0 254:0 /volumes/w /other rw - ext4 /dev/vda rw',
        '3 0 254:0 /volumes /mnt rw - ext4 /dev/vda rw',
      ].join('\n'),
    );
    expect(placeOf(volume!, host)).toBe('/mnt/v 1/_data');
    expect(placeOf(volume!, host.slice(0, 2))).toBeNull();
  });
});

describe('what Podman stores of builds', () => {
  it('names the containers whose layers were written into, in both of its lists', async () => {
    const root = await mkdtemp(join(tmpdir(), 'nebo-stored-'));
    const [mine, other, light, layer, third] = Array.from({ length: 5 }, () =>
      randomBytes(32).toString('hex'),
    );
    await mkdir(join(root, 'overlay-containers'));
    await writeFile(
      join(root, 'overlay-containers/containers.json'),
      JSON.stringify([
        { id: mine, layer },
        { id: other, layer: third },
        { id: '../x', layer },
        'x',
        { id: 1 },
      ]),
    );
    await writeFile(
      join(root, 'overlay-containers/volatile-containers.json'),
      JSON.stringify([{ id: light, layer }]),
    );
    expect(await workingContainers(root, [`${root}/overlay/${layer}/diff`])).toEqual([mine, light]);
    // A folder elsewhere that is called like a layer is none.
    expect(await workingContainers(root, [`/elsewhere/${third}`])).toEqual([]);
    await writeFile(join(root, 'overlay-containers/containers.json'), '[{"id":');
    expect(await workingContainers(root, [`${root}/overlay/${layer}/diff`])).toEqual([light]);
    expect(await workingContainers(join(root, 'none'), [])).toEqual([]);
    await rm(root, { recursive: true });
  });
});

/** Processes and groups are the kernel's; only the engine that would have made them is a double. */
(missing === null ? describe : describe.skip)(
  `the watch of a step${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
  () => {
    const id = randomBytes(32).toString('hex');
    const tag = `w${randomBytes(4).toString('hex')}`;
    const folders = ['cpu', 'memory', 'pids'].map((name) =>
      join(hierarchy!.roots[name as 'cpu'], `nebo-test-${tag}-${id}`),
    );
    let dir: string;
    let double: EngineDouble;
    let child: ChildProcess;
    let wrote: Set<string>;

    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'nebo-watch-'));
      double = await EngineDouble.make();
      await double.up();
      for (const name of ['lower', 'upper', 'work', 'merged', 'volume', 'lower/bin', 'lower/seen'])
        await mkdir(join(dir, name));
      await writeFile(join(dir, 'lower/bin/busybox'), busybox.found!, { mode: 0o755 });
      for (const folder of folders) await mkdir(folder, { recursive: true });
      // A root of its own, like a container's: an overlay, and a volume in it.
      const script = [
        `mount -t overlay o -o lowerdir=${dir}/lower,upperdir=${dir}/upper,workdir=${dir}/work ${dir}/merged`,
        `mount --bind ${dir}/volume ${dir}/merged/seen`,
        ...folders.map((folder) => `echo $$ > ${folder}/cgroup.procs`),
        'echo ready',
        `exec chroot ${dir}/merged /bin/busybox sleep 600`,
      ].join(' && ');
      child = spawn('unshare', ['--mount', 'sh', '-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
      await once(child.stdout!, 'data');
      // Until then it sees what its host has mounted.
      const root = await realpath(join(dir, 'merged'));
      await eventually(async () => (await readlink(`/proc/${child.pid}/root`)) === root);
    }, 30_000);
    afterAll(async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
      for (const folder of new Set(folders)) await rmdir(folder);
      await double.end();
      await rm(dir, { recursive: true });
    });
    beforeEach(() => {
      wrote = new Set();
      double.containers.clear();
    });

    const groups = () => new StepGroups(new Cgroups(hierarchy!, tag), `nebo-${tag}`);
    const watch = (more: Partial<Steps> = {}) =>
      new StepWatch(
        {
          ...{ client: new EngineClient(double.socket), group: null, storage: [], lenient: false },
          containers: async () => [...double.containers.keys()],
          bound: (...of) => groups().bound(...of),
          wrote: (folder) => wrote.add(folder),
          ...more,
        },
        { diskBytes: 8 * mebi, processes: 33 },
      );
    const runs = (Pid: number) => ({ created: 0, extraHosts: [], state: { Running: true, Pid } });
    /** What it says of the time until a signal that comes after some looks. */
    const within = (ms: number, of: StepWatch) => of.run(AbortSignal.timeout(ms));

    it('finds what is written, in the overlay and beside it', async () => {
      const { own, whole } = await writtenFolders([child.pid!], []);
      expect([...own]).toEqual([join(dir, 'upper'), join(dir, 'volume')]);
      expect([...whole]).toEqual([]);
    });

    it('bounds the processes of a group that the engine has made, and only of the container that was asked for', async () => {
      double.containers.set(id, runs(child.pid!));
      const now = watch();
      expect(await within(900, now)).toBeNull();
      expect(now.holds).toBe(true);
      const file = join(hierarchy!.roots.pids, `nebo-test-${tag}-${id}`, 'pids.max');
      expect((await readFile(file, 'utf8')).trim()).toBe('33');
      expect(await groups().bound(child.pid!, 'f'.repeat(64), 5)).toBe(false);
      expect((await readFile(file, 'utf8')).trim()).toBe('33');
    });

    it('ends one that fills the disk by many files, in a volume too', async () => {
      double.containers.set(id, runs(child.pid!));
      expect(await within(900, watch())).toBeNull();
      for (let part = 0; part < 10; part += 1)
        await writeFile(join(dir, 'volume', `${part}`), randomBytes(mebi));
      const words = 'A step wrote more than 8 MB.';
      expect(await within(20_000, watch())).toBe(words);
      expect(wrote).toContain(join(dir, 'upper'));
      const group = { path: '/x', pids: async () => [child.pid!] };
      expect(await within(20_000, watch({ group }))).toBe(words);
    }, 60_000);

    it('a container of another machine is refused, or, where its operator named the engine, measured by what that says', async () => {
      // Its number is somebody else's here.
      double.containers.set(id, { ...runs(process.pid), size: 9 * mebi });
      expect(await within(20_000, watch())).toBe(unboundWords);
      const lenient = watch({ lenient: true });
      expect(await within(20_000, lenient)).toBe('A step wrote more than 8 MB.');
      expect(lenient.holds).toBe(false);
    }, 60_000);

    it('one that has ended meanwhile is no matter', async () => {
      double.containers.set(id, { ...runs(0), state: { Running: false, Pid: 0 } });
      expect(await within(900, watch())).toBeNull();
      await double.down();
      expect(await within(900, watch())).toBeNull();
      await double.up();
    });
  },
);
