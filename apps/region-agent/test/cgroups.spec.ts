import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Cgroups, findHierarchy } from '../src/drivers/local/cgroups.js';

/** Both versions on a folder of plain files that stands for the kernel's; the real one is used by the hostile builds. */
describe('cgroups', () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-cgroup-'));
  });
  afterEach(() => rm(root, { recursive: true, force: true }));
  const limits = { memoryBytes: 1_000_000, cpus: 0.5, processes: 50 };
  const read = (path: string) => readFile(join(root, path), 'utf8');

  it('v1: three mounts, one folder in each', async () => {
    for (const name of ['cpu,cpuacct', 'memory', 'pids']) await mkdir(join(root, name));
    const mounts = ['cpu,cpuacct', 'memory', 'pids']
      .map((name) => `cgroup ${root}/${name} cgroup rw,relatime,${name} 0 0`)
      .join('\n');
    const groups = new Cgroups((await findHierarchy(mounts))!, 'abc');
    expect(groups.version).toBe(1);
    const group = await groups.create('run', limits);
    expect(await read('cpu,cpuacct/nebo-abc/run/cpu.cfs_quota_us')).toBe('50000');
    expect(await read('memory/nebo-abc/run/memory.limit_in_bytes')).toBe('1000000');
    expect(await read('pids/nebo-abc/run/pids.max')).toBe('50');
    expect(group.procsFiles).toHaveLength(3);
    expect(await group.outOfMemory()).toBe(false);
    await writeFile(
      join(root, 'memory/nebo-abc/run/memory.oom_control'),
      'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n',
    );
    expect(await group.outOfMemory()).toBe(true);
    // The kernel makes this file; nanoseconds.
    expect(await group.cpuMicroseconds()).toBeNull();
    await writeFile(join(root, 'cpu,cpuacct/nebo-abc/run/cpuacct.usage'), '1234567890\n');
    expect(await group.cpuMicroseconds()).toBe(1_234_567);
    await writeFile(join(root, 'cpu,cpuacct/nebo-abc/run/cpuacct.usage'), '999\n');
    expect(await group.cpuMicroseconds()).toBe(0);
    expect(await groups.cpuMicroseconds('another')).toBeNull();
  });

  it('v1 that counts processor time in a mount of its own, or not at all', async () => {
    for (const name of ['cpu', 'memory', 'pids', 'cpuacct']) await mkdir(join(root, name));
    const mount = (name: string) => `cgroup ${root}/${name} cgroup rw,relatime,${name} 0 0`;
    const without = ['cpu', 'memory', 'pids'].map(mount).join('\n');
    const groups = new Cgroups((await findHierarchy(`${without}\n${mount('cpuacct')}`))!, 'abc');
    const group = await groups.create('run', limits);
    expect(group.procsFiles).toContain(join(root, 'cpuacct/nebo-abc/run/cgroup.procs'));
    await writeFile(join(root, 'cpuacct/nebo-abc/run/cpuacct.usage'), '5000000\n');
    expect(await group.cpuMicroseconds()).toBe(5_000);
    expect(await groups.names()).toEqual(['run']);
    const blind = new Cgroups((await findHierarchy(without))!, 'abc');
    expect(await blind.cpuMicroseconds('run')).toBeNull();
  });

  it('v2: one tree, controllers handed down on the way', async () => {
    await writeFile(join(root, 'cgroup.controllers'), 'cpuset cpu io memory pids\n');
    const groups = new Cgroups((await findHierarchy(`cgroup2 ${root} cgroup2 rw 0 0`))!, 'abc');
    expect(groups.version).toBe(2);
    const group = await groups.create('run', limits);
    expect(await read('cgroup.subtree_control')).toBe('+cpu +memory +pids');
    expect(await read('nebo-abc/cgroup.subtree_control')).toBe('+cpu +memory +pids');
    expect(await read('nebo-abc/run/cpu.max')).toBe('50000 100000');
    expect(await read('nebo-abc/run/memory.max')).toBe('1000000');
    expect(await read('nebo-abc/run/pids.max')).toBe('50');
    expect(group.procsFiles).toEqual([join(root, 'nebo-abc/run/cgroup.procs')]);
    await writeFile(join(root, 'nebo-abc/run/memory.events'), 'low 0\noom 1\noom_kill 1\n');
    await writeFile(join(root, 'nebo-abc/run/cpu.stat'), 'usage_usec 4242\n');
    expect(await group.outOfMemory()).toBe(true);
    expect(await group.outOfProcesses()).toBe(false);
    expect(await group.cpuMicroseconds()).toBe(4242);
  });

  it('neither: no limits', async () => {
    expect(await findHierarchy('proc /proc proc rw 0 0')).toBeNull();
    await writeFile(join(root, 'cgroup.controllers'), 'hugetlb\n');
    expect(await findHierarchy(`cgroup2 ${root} cgroup2 rw 0 0`)).toBeNull();
    expect(await readdir(root)).toEqual(['cgroup.controllers']);
  });
});
