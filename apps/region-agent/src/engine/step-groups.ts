import { readdir, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type BuildLimits } from '../drivers/create.js';
import { type Cgroups } from '../drivers/local/cgroups.js';
import { type Engine } from './engines.js';

interface Info {
  CgroupDriver?: string;
  /** `name=seccomp,…`, `name=rootless` … */
  SecurityOptions?: string[];
}

/** The group above the containers of one build. */
export interface StepGroup {
  /** For the engine's `cgroupparent`. */
  path: string;
}

/**
 * Control groups that the containers of a build are put below: an engine's interface has no limit on processes, and bounds each step
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
  async open(engine: Engine, name: string, limits: BuildLimits): Promise<StepGroup | null> {
    if (this.cgroups === null) return null;
    const info = await engine.client.json<Info>('GET', '/info');
    const rootless = info?.SecurityOptions?.some((option) => option.includes('rootless'));
    if (info?.CgroupDriver !== 'cgroupfs' || rootless) return null;
    await this.cgroups.create(name, limits);
    return { path: join('/', this.base, name) };
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
