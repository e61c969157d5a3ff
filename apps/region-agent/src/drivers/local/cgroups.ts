import { mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { signal } from '../../system/processes.js';
import { sleep } from '../../system/timing.js';

export interface GroupLimits {
  memoryBytes: number;
  cpus: number;
  processes: number;
}

/** Where limits can be set on this host. */
export interface CgroupHierarchy {
  version: 1 | 2;
  /** v1: a mount point per controller; v2: the one folder under which groups are made, for every controller. */
  roots: Record<'cpu' | 'memory' | 'pids', string>;
  /** v1: where `cpuacct` is mounted, alone or with `cpu`; null: nothing counts processor time. v2: `cpu.stat` does. */
  accounting: string | null;
}

const controllers = ['cpu', 'memory', 'pids'] as const;

/** The limits group of one run. */
export interface Group {
  /** Files that take a pid: a process that writes its own moves itself in before it starts anything. */
  procsFiles: string[];
  /** Whether the kernel ended something in it for want of memory. */
  outOfMemory(): Promise<boolean>;
  /** Whether a fork was refused. */
  outOfProcesses(): Promise<boolean>;
  /** Processor time of everything that was ever in it, microseconds; null: it is not counted here, or the group is gone. */
  cpuMicroseconds(): Promise<number | null>;
  /** Kills everything in it until it is empty, then removes it. */
  remove(): Promise<void>;
}

/**
 * Finds a hierarchy that can be written to: v1 where the three controllers are mounted on their own, else v2 where the
 * controllers can be handed down. Null when there is neither.
 * @param mounts text of /proc/self/mounts
 */
export async function findHierarchy(mounts: string): Promise<CgroupHierarchy | null> {
  const lines = mounts.split('\n').map((line) => line.split(' '));
  const roots: Partial<CgroupHierarchy['roots'] & { cpuacct: string }> = {};
  for (const [, point, type, options] of lines)
    if (type === 'cgroup')
      for (const name of [...controllers, 'cpuacct'] as const)
        if (options?.split(',').includes(name)) roots[name] = point!;
  const { cpu, memory, pids, cpuacct } = roots;
  if (cpu && memory && pids) return { version: 1, roots: { cpu, memory, pids }, accounting: cpuacct ?? null };
  const unified = lines.find(([, , type]) => type === 'cgroup2')?.[1];
  if (!unified) return null;
  const available = (await readFile(join(unified, 'cgroup.controllers'), 'utf8').catch(() => '')).split(
    /\s+/,
  );
  if (!controllers.every((name) => available.includes(name))) return null;
  return { version: 2, roots: { cpu: unified, memory: unified, pids: unified }, accounting: unified };
}

/** Groups of one agent, all below `nebo-<tag>`. */
export class Cgroups {
  constructor(
    private readonly hierarchy: CgroupHierarchy,
    private readonly tag: string,
  ) {}

  get version(): 1 | 2 {
    return this.hierarchy.version;
  }

  /** @throws when the hierarchy cannot be written */
  async create(name: string, limits: GroupLimits): Promise<Group> {
    const folders = this.folders(name);
    await Promise.all(folders.map((folder) => mkdir(folder, { recursive: true })));
    if (this.version === 1) await this.limitV1(name, limits);
    else await this.limitV2(name, limits);
    const at = (controller: (typeof controllers)[number], file: string) =>
      join(this.folder(controller, name), file);
    const counted = async (path: string, key: string) =>
      new RegExp(`^${key} [1-9]`, 'm').test(await readFile(path, 'utf8').catch(() => ''));
    return {
      procsFiles: folders.map((folder) => join(folder, 'cgroup.procs')),
      outOfMemory: () =>
        counted(at('memory', this.version === 1 ? 'memory.oom_control' : 'memory.events'), 'oom_kill'),
      outOfProcesses: () => counted(at('pids', 'pids.events'), 'max'),
      cpuMicroseconds: () => this.cpuMicroseconds(name),
      remove: () => this.remove(folders),
    };
  }

  /** Processor time of the group of this name, which may be an earlier agent's: see `Group.cpuMicroseconds`. */
  async cpuMicroseconds(name: string): Promise<number | null> {
    const { accounting } = this.hierarchy;
    if (accounting === null) return null;
    const [file, form] =
      this.version === 1
        ? (['cpuacct.usage', /^(\d+)\d{3}$/] as const)
        : (['cpu.stat', /^usage_usec (\d+)$/m] as const);
    const path = join(accounting, `nebo-${this.tag}`, name, file);
    const text = await readFile(path, 'utf8').catch(() => null);
    if (text === null) return null;
    // v1 counts nanoseconds; below a microsecond there is nothing.
    return Number(form.exec(text.trim())?.[1] ?? 0);
  }

  /** Processes in the group of this name and in those that others have made below it. */
  async processes(name: string): Promise<number[]> {
    const within = async (folder: string): Promise<string> => {
      const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
      const below = entries.filter((entry) => entry.isDirectory()).map((entry) => join(folder, entry.name));
      const own = readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => '');
      return (await Promise.all([own, ...below.map(within)])).join('\n');
    };
    return pidsIn(await within(this.folder('pids', name)));
  }

  /**
   * Bounds the processes of a group that somebody else has made.
   * @param membership text of /proc/PID/cgroup of a process in it
   * @param name that a folder of its path must have in it
   * @returns whether there is one
   */
  async limitProcesses(membership: string, name: string, processes: number): Promise<boolean> {
    for (const line of membership.split('\n')) {
      const [, list = '', path = ''] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
      if (this.version === 1 ? !list.split(',').includes('pids') : list !== '') continue;
      if (!path.includes(name) || path.split('/').includes('..')) return false;
      await writeFile(join(this.hierarchy.roots.pids, path, 'pids.max'), String(processes));
      return true;
    }
    return false;
  }

  /** Ends and removes the group of this name, which may have been made by an earlier agent. */
  drop(name: string): Promise<void> {
    return this.remove(this.folders(name));
  }

  /** Names of all groups that there are, an earlier agent's too. */
  async names(): Promise<string[]> {
    const bases = new Set(this.bases());
    const names = new Set<string>();
    for (const base of bases)
      for (const entry of await readdir(base, { withFileTypes: true }).catch(() => []))
        if (entry.isDirectory()) names.add(entry.name);
    return [...names];
  }

  /** Ends and removes every group of this agent. */
  async cleanUp(): Promise<void> {
    for (const name of await this.names()) await this.remove(this.folders(name));
    await this.removeBase();
  }

  /** Removes the folder of all groups when nothing is in it. */
  async removeBase(): Promise<void> {
    for (const base of this.bases()) await rmdir(base).catch(() => undefined);
  }

  private base(controller: (typeof controllers)[number]): string {
    return join(this.hierarchy.roots[controller], `nebo-${this.tag}`);
  }

  private folder(controller: (typeof controllers)[number], name: string): string {
    return join(this.base(controller), name);
  }

  private folders(name: string): string[] {
    return this.bases().map((base) => join(base, name));
  }

  /** The folders in which there are groups, each once. */
  private bases(): string[] {
    const { accounting } = this.hierarchy;
    const bases = controllers.map((controller) => this.base(controller));
    if (accounting !== null) bases.push(join(accounting, `nebo-${this.tag}`));
    return [...new Set(bases)];
  }

  private async limitV1(name: string, limits: GroupLimits): Promise<void> {
    const set = (controller: (typeof controllers)[number], file: string, value: number) =>
      writeFile(join(this.folder(controller, name), file), String(value));
    await set('cpu', 'cpu.cfs_period_us', 100_000);
    await set('cpu', 'cpu.cfs_quota_us', Math.max(1_000, Math.round(limits.cpus * 100_000)));
    await set('memory', 'memory.limit_in_bytes', limits.memoryBytes);
    // Swap beyond the limit would only delay the end; kernels without swap accounting have no such file.
    await set('memory', 'memory.memsw.limit_in_bytes', limits.memoryBytes).catch(() => undefined);
    await set('pids', 'pids.max', limits.processes);
  }

  private async limitV2(name: string, limits: GroupLimits): Promise<void> {
    await this.handDown(this.hierarchy.roots.cpu);
    await this.handDown(this.base('cpu'));
    const set = (file: string, value: string) => writeFile(join(this.folder('cpu', name), file), value);
    await set('cpu.max', `${Math.max(1_000, Math.round(limits.cpus * 100_000))} 100000`);
    await set('memory.max', String(limits.memoryBytes));
    await set('memory.swap.max', '0').catch(() => undefined);
    await set('pids.max', String(limits.processes));
  }

  /**
   * Lets groups below a v2 group have the controllers. A container's own root is no root for the kernel: it may have processes or such
   * groups, not both (cgroup-v2, "no internal process constraint"), so what runs there moves into a group beside ours.
   */
  private async handDown(folder: string): Promise<void> {
    for (let left = 5; ; left -= 1)
      try {
        return await writeFile(join(folder, 'cgroup.subtree_control'), '+cpu +memory +pids');
      } catch (error) {
        if (left === 0 || (error as NodeJS.ErrnoException).code !== 'EBUSY') throw error;
        const beside = join(folder, 'nebo-host');
        await mkdir(beside, { recursive: true });
        // One that has just ended cannot be moved; one that has just begun is, in the next turn.
        for (const pid of pidsIn(await readFile(join(folder, 'cgroup.procs'), 'utf8')))
          await writeFile(join(beside, 'cgroup.procs'), String(pid)).catch(() => undefined);
      }
  }

  private async remove(folders: readonly string[]): Promise<void> {
    const until = Date.now() + 5_000;
    for (const folder of folders)
      for (;;) {
        const text = await readFile(join(folder, 'cgroup.procs'), 'utf8').catch(() => '');
        for (const pid of pidsIn(text)) signal(pid, 'SIGKILL');
        const gone = await rmdir(folder).then(
          () => true,
          async () => !(await stat(folder).catch(() => null)),
        );
        if (gone || Date.now() > until) break;
        await sleep(10);
      }
  }
}

/** Of a text like that of `cgroup.procs`; a process of another namespace is a 0 there. */
const pidsIn = (text: string): number[] =>
  text
    .split('\n')
    .filter((line) => /^[1-9]\d*$/.test(line))
    .map(Number);
