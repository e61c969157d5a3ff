import { join } from 'node:path';
import { type EngineClient } from './client.js';

/** What matters of an engine's `/info`. */
export interface EngineInfo {
  /** Whether it makes control groups as folders, as root: then its containers can be put below one of ours. */
  takesGroups: boolean;
  /** Folder of all that it stores, on its host; null: it does not say. */
  root: string | null;
  /** Folders that its layers are named relative to, in /proc too. */
  layers: readonly string[];
}

interface Info {
  CgroupDriver?: string;
  DockerRootDir?: string;
  Driver?: string;
  /** `name=seccomp,…`, `name=rootless` … */
  SecurityOptions?: string[];
}

/** @throws EngineGone, EngineRefused */
export async function engineInfo(client: EngineClient): Promise<EngineInfo> {
  const info = await client.json<Info>('GET', '/info');
  const { CgroupDriver, DockerRootDir: root = '', Driver = '', SecurityOptions = [] } = info ?? {};
  const rootless = SecurityOptions.some((option) => option.includes('rootless'));
  const known = root.startsWith('/');
  return {
    takesGroups: CgroupDriver === 'cgroupfs' && !rootless,
    root: known ? root : null,
    layers: known && /^[a-z0-9-]+$/.test(Driver) ? [join(root, Driver)] : [],
  };
}
