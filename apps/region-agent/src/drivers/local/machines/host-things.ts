import { readdir } from 'node:fs/promises';
import { type RegionThing } from '@nebo/contracts';
import { type Cgroups } from '../cgroups.js';
import { isMachineId } from './machine-folder.js';
import { findQemus } from './qemu.js';

export interface MachinePlaces {
  /** Before the machine's id, in the name of its process. */
  prefix: string;
  /** Folder of disks, and that of sockets. */
  disks: string;
  run: string;
  cgroups: Cgroups | null;
}

/** What lies on this host of machines, looked at itself: whatever any driver remembers of it. */
export async function machineThings({ prefix, disks, run, cgroups }: MachinePlaces): Promise<RegionThing[]> {
  const thing = (kind: string, id: string, vm: string): RegionThing => ({
    kind,
    id,
    of: isMachineId(vm) ? `vm:${vm}` : null,
    state: null,
  });
  const names = (dir: string) => readdir(dir).catch(() => [] as string[]);
  const processes = [...(await findQemus(prefix))];
  return [
    ...processes.flatMap(([id, pids]) => pids.map((pid) => thing('process', `qemu ${pid}`, id))),
    ...(await names(disks)).map((name) => thing('disk', name, name)),
    ...(await names(run)).map((name) => thing('folder', `${run}/${name}`, name)),
    ...((await cgroups?.names()) ?? []).map((name) => thing('folder', `cgroup ${name}`, name)),
  ];
}
