import { readdir, readFile, readlink, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type BuildLimits } from '../drivers/create.js';
import { type Cgroups } from '../drivers/local/cgroups.js';
import { type EngineInfo } from './engine-info.js';

/** The group above the containers of one build. */
export interface StepGroup {
  /** For the engine's `cgroupparent`. */
  path: string;
  /** Processes in it and below it, as this host counts them. */
  pids(): Promise<number[]>;
}

/**
 * Control groups of the containers of a build: an engine's interface has no limit on processes, and bounds each step
 * by itself only.
 */
export class StepGroups {
  /**
   * @param cgroups of this purpose alone; null: none can be made here
   * @param base name of their folder
   * @param root where groups are mounted
   */
  constructor(
    private readonly cgroups: Cgroups | null,
    private readonly base: string,
    private readonly root = '/sys/fs/cgroup',
  ) {}

  /** Null where the engine makes groups in a way of its own (by systemd, in another machine) or may not use ours (rootless). */
  async open({ takesGroups }: EngineInfo, name: string, limits: BuildLimits): Promise<StepGroup | null> {
    const { cgroups } = this;
    if (cgroups === null || !takesGroups || !(await seesAllGroups())) return null;
    await cgroups.create(name, limits);
    return { path: join('/', this.base, name), pids: () => cgroups.processes(name) };
  }

  /**
   * Bounds the processes of a container whose group the engine has made itself.
   * @param pid of its first process, as the engine says it
   * @param id of the container, whole: its group is named by it
   * @returns whether that process is this host's and its group could be bounded
   */
  async bound(pid: number, id: string, processes: number): Promise<boolean> {
    if (this.cgroups === null || !(pid > 0)) return false;
    // An engine in another machine counts its processes there: what has this number here is somebody else's.
    const text = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => '');
    return this.cgroups.limitProcesses(text, id, processes).catch(() => false);
  }

  /** Removes it and what the engine has made of its name beside; not there is fine. */
  async remove(name: string): Promise<void> {
    await this.cgroups?.drop(name);
    for (const controller of await readdir(this.root).catch(() => []))
      for (const path of [join(this.base, name), this.base])
        await rmdir(join(this.root, controller, path)).catch(() => undefined);
    await rmdir(join(this.root, dirname(join(this.base, name)))).catch(() => undefined);
  }
}

/** An agent in a container may have a view of groups of its own: what it makes there has another path for the engine. */
const seesAllGroups = async (): Promise<boolean> =>
  (await readlink('/proc/self/ns/cgroup').catch(() => initialGroups)) === initialGroups;
/** The kernel's first namespace of groups has always this number (PROC_CGROUP_INIT_INO). */
const initialGroups = 'cgroup:[4026531835]';
