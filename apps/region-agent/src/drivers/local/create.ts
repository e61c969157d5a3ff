import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentLog } from '../../agent-log.js';
import { type Toolchain } from '../../system/toolchain.js';
import { type BuildLimits } from '../create.js';
import { type Egress, type PortPlugs } from '../types.js';
import { LocalBuildHost } from './builds.js';
import { Cgroups, findHierarchy } from './cgroups.js';
import { type ImageTools, makeImageTools } from './image-tools.js';
import { NetworkSpace } from './netns.js';
import { Networks } from './networks.js';
import { ReadyNetworks } from './ready-networks.js';
import { LocalReplicaHost } from './replicas.js';
import { guardSlots } from './slot-guard.js';
import { Slots } from './slots.js';

export interface LocalParts {
  tools: Toolchain;
  slots: Slots;
  networks: Networks;
  /** Networks for replicas and runs, made in advance. */
  ready: ReadyNetworks;
  cgroups: Cgroups | null;
  egress: Egress | null;
  limits: BuildLimits;
  log: AgentLog;
  /** Made when the first image is started. */
  imageTools: () => Promise<ImageTools>;
}

export interface LocalOptions {
  home: string;
  log: AgentLog;
  tag: string;
  tools: Toolchain;
  egress: Egress | null;
  limits: BuildLimits;
  /** Null: networks are simulated here. */
  plugs: PortPlugs | null;
  /** Networks kept ready for starts. */
  readyNetworks: number;
}

/** The hosts of the `local` driver; builds and replicas share addresses, users and groups. */
export async function createLocalHosts(
  options: LocalOptions,
): Promise<{ builds: LocalBuildHost; replicas: LocalReplicaHost }> {
  const { home, log, tag, tools, egress, limits, plugs, readyNetworks } = options;
  const slots = new Slots(join(home, 'slots'), tag);
  const networks = new Networks(tag, slots, egress, plugs);
  const hierarchy = await findHierarchy(await readFile('/proc/self/mounts', 'utf8'));
  const cgroups = hierarchy ? new Cgroups(hierarchy, tag) : null;
  let made: Promise<ImageTools> | null = null;
  const imageTools = () => (made ??= makeImageTools(join(home, 'image-tools')));
  const ready = new ReadyNetworks(readyNetworks, (name) => networks.open(name), log);
  const parts: LocalParts = { tools, slots, networks, ready, cgroups, egress, limits, log, imageTools };
  let cleaned: Promise<void> | null = null;
  // Once for both: what one of them has just made must not be taken for a leftover by the other.
  const cleanUp = () => {
    cleaned ??= (async () => {
      await cgroups?.cleanUp();
      await networks.cleanUp();
      const others = await guardSlots(new NetworkSpace(null));
      if (others.length > 0)
        log.warn(
          { networks: others },
          'the host has a network where runs have addresses: what asks for one that is gone asks there',
        );
      ready.start();
    })();
    return cleaned;
  };
  return { builds: new LocalBuildHost(parts, cleanUp), replicas: new LocalReplicaHost(parts, cleanUp) };
}
