import { createHash, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type MachineSpec } from '@nebo/contracts';
import { cacheFolder } from '@nebo/test-kit';
import { probeDrivers } from '../src/index.js';
import { tool } from '../src/drivers/local/exec.js';
import { LocalMachineDriver } from '../src/drivers/local/machines/driver.js';
import { findQemus } from '../src/drivers/local/machines/qemu.js';
import { type EnsureIo } from '../src/drivers/machine-driver.js';
import { emptyQcow2 } from '../src/drivers/simulated/machines.js';
import { homeTag } from '../src/system/runs.js';
import { eventually, later, testLog } from './agent-kit.js';
import { machineSpec, noBlobs } from './machine-driver-suite.js';

const { machines } = await probeDrivers({ NEBO_IMAGES: join(cacheFolder(), 'tiny-image') });
const missing = machines.driver === 'local' ? null : machines.why;
const never = new AbortController().signal;
const refOf = (bytes: Buffer) => ({
  sha256: createHash('sha256').update(bytes).digest('hex'),
  bytes: bytes.length,
});

/** What goes wrong with real machines. Their disks are empty, so QEMU runs and nothing boots. */
(missing === null ? describe : describe.skip)('machines by the driver local, when something is wrong', () => {
  let dir: string;
  let driver: LocalMachineDriver;
  const make = (graceMs = 200) =>
    new LocalMachineDriver({
      ...{ dir, tag: homeTag(dir), images: join(dir, 'images-of-the-operator'), taps: null, cgroups: null },
      ...{ log: testLog, runRoot: join(dir, 'run'), accelerator: 'tcg' as const, graceMs },
    });
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-vms-'));
    await mkdir(join(dir, 'images-of-the-operator'));
    driver = make();
    await driver.start();
  });
  afterEach(async () => {
    await driver.stop();
    for (const { id } of await driver.list()) await driver.remove(id);
    expect((await processes()).size).toBe(0);
    await rm(dir, { recursive: true, force: true });
  });

  const processes = () => findQemus(`nebo-${homeTag(dir)}-`);
  const ioOf = (bytes?: Buffer): EnsureIo => ({
    signal: never,
    creating: () => undefined,
    blobs: bytes ? { ...noBlobs, get: async () => Readable.from([bytes]) } : noBlobs,
  });
  const imageOf = (bytes: Buffer) => ({ id: randomUUID(), filename: 'x', blob: refOf(bytes) });
  const empty = emptyQcow2('nothing');
  const specOf = (more: Partial<MachineSpec> = {}) => machineSpec({ image: imageOf(empty), ...more });
  const started = async (spec = specOf()) => {
    const id = randomUUID();
    await driver.ensure(id, spec, ioOf(empty));
    await driver.power(id, 'start', spec, 1, never);
    return { id, spec };
  };
  const kill = async (id: string) => {
    for (const pid of (await processes()).get(id)!) process.kill(pid, 'SIGKILL');
    await eventually(async () => !(await processes()).has(id));
  };

  it('starts, grows and backs up no disk whose head leads to files of this host', async () => {
    const spec = specOf();
    const id = randomUUID();
    await driver.ensure(id, spec, ioOf(empty));
    const disk = join(dir, 'disks', id, 'disk.qcow2');
    const secret = join(dir, 'secret');
    await writeFile(secret, 'of the host'.padEnd(65_536, ' '));
    // What a QEMU that its guest has taken over could write into its own file.
    await tool(['qemu-img', 'rebase', '-u', '-f', 'qcow2', '-F', 'raw', '-b', secret, disk]);
    await expect(driver.power(id, 'start', spec, 1, never)).rejects.toThrow(/not the one that was made/);
    expect((await processes()).size).toBe(0);
    const larger = { ...spec, disk_gb: spec.disk_gb + 1 };
    await expect(driver.ensure(id, larger, ioOf(empty))).rejects.toThrow(/not the one that was made/);
    const path = join(dir, 'backup');
    await expect(driver.backup(id, path, never)).rejects.toThrow(/not the one that was made/);
    expect(existsSync(path)).toBe(false);
  });

  it('refuses what is no image: not there, no qcow2, one that leads to files of this host, one that is too large', async () => {
    const refused = (spec: MachineSpec, bytes?: Buffer) => {
      const made = driver.ensure(randomUUID(), spec, ioOf(bytes));
      return made.then(
        () => 'made',
        (error: Error) => `${error.name}: ${error.message}`,
      );
    };
    const builtIn = (filename: string) => specOf({ image: { id: '', filename, blob: null } });
    expect(await refused(builtIn('none.qcow2'))).toMatch(
      /MachineFault: .* does not have the image none.qcow2/,
    );
    expect(await refused(builtIn('../../etc/passwd'))).toMatch(/MachineFault: the name of the image/);
    const text = Buffer.from('root:x:0:0');
    expect(await refused(specOf({ image: imageOf(text) }), text)).toMatch(
      /MachineFault: .*no qcow2 file and no raw one/,
    );
    const file = join(dir, 'bad.qcow2');
    await tool(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', '/etc/passwd', file, '1M']);
    const leading = await readFile(file);
    expect(await refused(specOf({ image: imageOf(leading) }), leading)).toMatch(
      /MachineFault: .*refers to another file/,
    );
    await tool(['qemu-img', 'create', '-q', '-f', 'qcow2', file, '5G']);
    const large = await readFile(file);
    expect(await refused(specOf({ image: imageOf(large) }), large)).toBe(
      'MachineFault: its image needs a disk of at least 5 GB',
    );
    // Bytes that were changed on their way are no word about the image: they are asked for again.
    expect(await refused(specOf({ image: imageOf(empty) }), text)).toMatch(/^Error: .* other bytes/);
    expect(await driver.list()).toEqual([]);
    expect((await readdir(join(dir, 'disks'))).length).toBe(0);
    expect((await readdir(join(dir, 'images'))).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  it('takes a raw disk with a partition table, whatever else its first bytes say', async () => {
    const raw = Buffer.alloc(1 << 20);
    raw.writeUInt16BE(0x55aa, 510);
    const id = randomUUID();
    const spec = specOf({ image: imageOf(raw) });
    await driver.ensure(id, spec, ioOf(raw));
    const disk = join(dir, 'disks', id, 'disk.qcow2');
    const info = JSON.parse(await tool(['qemu-img', 'info', '--output=json', disk])) as Record<
      string,
      unknown
    >;
    expect(info).toMatchObject({ 'backing-filename-format': 'raw', 'virtual-size': 1024 ** 3 });
    expect(await driver.power(id, 'start', spec, 1, never)).toMatchObject({ state: 'running' });
  });

  it('refuses a manifest whose files do not belong together', async () => {
    const folder = join(dir, 'images-of-the-operator');
    await writeFile(join(folder, 'own.qcow2'), empty);
    await writeFile(join(folder, 'kernel'), 'not this one');
    const boot = {
      kernel: { file: 'kernel', sha256: refOf(empty).sha256 },
      initrd: { file: 'kernel', sha256: '' },
    };
    await writeFile(join(folder, 'own.qcow2.json'), JSON.stringify({ boot: { ...boot, append: '' } }));
    const spec = specOf({ image: { id: '', filename: 'own.qcow2', blob: null } });
    await expect(driver.ensure(randomUUID(), spec, ioOf())).rejects.toThrow('do not belong together');
  });

  it('sees a machine that ended by itself, has it started again, and says when that does not help', async () => {
    const { id, spec } = await started();
    for (let time = 1; time <= 3; time += 1) {
      await kill(id);
      expect(await driver.ensure(id, spec, ioOf())).toMatchObject({
        state: 'stopped',
        facts: { boot: 1, started_at: null, guest_agent: null },
      });
      if (time < 3)
        expect(await driver.power(id, 'start', spec, 1, never)).toMatchObject({ state: 'running' });
    }
    await expect(driver.power(id, 'start', spec, 1, never)).rejects.toThrow(
      /^it ended by itself 3 times within ten minutes/,
    );
    // Somebody asks again: it is tried again.
    expect(await driver.power(id, 'start', spec, 1, never)).toMatchObject({ state: 'running' });
  }, 60_000);

  it('a start that overtakes a stop: a guest that is going down already is waited for, and then to be started', async () => {
    driver = make(10_000);
    await driver.start();
    const { id, spec } = await started();
    const overtaken = new AbortController();
    const stop = driver.power(id, 'stop', { ...spec, power: 'stopped' }, 1, overtaken.signal);
    await later(50);
    overtaken.abort();
    await expect(stop).rejects.toThrow();
    // The guest has heard of its end, which takes some seconds.
    const end = later(5_000).then(() => kill(id));
    expect(await driver.ensure(id, spec, ioOf(empty))).toMatchObject({ state: 'stopped' });
    await end;
    expect(await driver.power(id, 'start', spec, 1, never)).toMatchObject({ state: 'running' });
  });

  it('one that does not heed the power button runs on when the stop is taken back', async () => {
    const { id, spec } = await started();
    const [pids] = [...(await processes()).values()];
    const overtaken = new AbortController();
    const stop = driver.power(id, 'stop', { ...spec, power: 'stopped' }, 1, overtaken.signal);
    await later(50);
    overtaken.abort();
    await expect(stop).rejects.toThrow();
    expect(await driver.ensure(id, spec, ioOf(empty))).toMatchObject({ state: 'running' });
    expect((await processes()).get(id)).toEqual(pids);
  });

  it('finds processes and folders that nobody knows of, and removes them', async () => {
    const { id, spec } = await started();
    const folder = join(dir, 'disks', id);
    await writeFile(join(folder, 'machine.json'), '{"id":');
    const next = make();
    await next.start();
    expect(await next.list()).toMatchObject([{ id, state: 'running', facts: { boot: 0 } }]);
    await next.remove(id);
    expect(await next.list()).toEqual([]);
    const other = await started(spec);
    await rm(join(dir, 'disks', other.id), { recursive: true });
    const third = make();
    await third.start();
    expect(await third.list()).toMatchObject([{ id: other.id, state: 'running' }]);
    // Wanted after all: it is made anew, and the old process is gone.
    let creations = 0;
    // The audit sees it too, and what has no machine's name.
    await mkdir(join(dir, 'disks', 'odd'));
    expect(await third.onHost()).toEqual(
      expect.arrayContaining([
        { kind: 'process', id: expect.stringMatching(/^qemu \d+$/), of: `vm:${other.id}`, state: null },
        { kind: 'folder', id: expect.stringContaining(other.id), of: `vm:${other.id}`, state: null },
        { kind: 'disk', id: 'odd', of: null, state: null },
      ]),
    );
    await third.ensure(other.id, spec, { ...ioOf(empty), creating: () => void (creations += 1) });
    expect(creations).toBe(1);
    expect((await processes()).size).toBe(0);
    driver = third;
  }, 60_000);

  it('a start that is broken off leaves no process; so does one that QEMU refuses', async () => {
    const spec = specOf();
    const id = randomUUID();
    await driver.ensure(id, spec, ioOf(empty));
    const stop = new AbortController();
    const start = driver.power(id, 'start', spec, 1, stop.signal);
    const log = join(dir, 'run', homeTag(dir), id, 'qemu.log');
    // QEMU is being started, and is not asked yet whether it is there.
    while (!existsSync(log)) await new Promise((resolve) => setImmediate(resolve));
    stop.abort();
    await expect(start).rejects.toThrow();
    expect((await processes()).size).toBe(0);
    expect(await driver.list()).toMatchObject([{ id, state: 'stopped', facts: { boot: 0 } }]);
    await writeFile(join(dir, 'disks', id, 'disk.qcow2'), 'no disk');
    await expect(driver.power(id, 'start', spec, 1, never)).rejects.toThrow(/QEMU ended at once: .*qcow2/);
    expect((await processes()).size).toBe(0);
  }, 60_000);

  it('refuses a seed that is too large, and interfaces where networks are not real', async () => {
    const large = specOf({ user_data: 'x'.repeat(3 << 20) });
    const id = randomUUID();
    await driver.ensure(id, large, ioOf(empty));
    await expect(driver.power(id, 'start', large, 1, never)).rejects.toThrow(
      'larger than a machine can take',
    );
    const card = {
      id: randomUUID(),
      name: 'a',
      vpc_id: randomUUID(),
      mac: '02:00:00:00:00:01',
      address: '10.0.0.2',
    };
    await expect(driver.power(id, 'start', specOf({ interfaces: [card] }), 1, never)).rejects.toThrow(
      'networks are not',
    );
    expect((await processes()).size).toBe(0);
  });

  it('backs up a running machine whose guest has no agent as after a power cut, and is broken off without a trace', async () => {
    const { id } = await started();
    const path = join(dir, 'backup');
    expect(await driver.backup(id, path, never)).toBe('crash');
    expect(await tool(['qemu-img', 'check', '-f', 'qcow2', path])).toContain('No errors');
    await expect(driver.backup(id, join(dir, 'second'), AbortSignal.timeout(1))).rejects.toThrow();
    expect(await readdir(join(dir, 'disks', id, 'jail'))).toEqual([]);
    // Nothing of it is left in QEMU either: the next one is made.
    expect(await driver.backup(id, join(dir, 'third'), never)).toBe('crash');
    await driver.halt();
    expect(await driver.list()).toMatchObject([{ id, state: 'stopped' }]);
  }, 60_000);
});
