import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RegionCapacity } from '@nebo/contracts';
import { type AllowList, createSafeClient, parseAllowList, type SafeClient } from '@nebo/safe-net';
import { type AgentLog } from '../agent-log.js';
import { HostBuildDriver } from '../builds/build-driver.js';
import { BuildCache, type CacheLimits } from '../builds/cache/build-cache.js';
import { cacheLimits } from '../builds/cache/settings.js';
import { ContainerBuilds } from '../engine/container-builds.js';
import { StepGroups } from '../engine/step-groups.js';
import { ContainerEngines } from '../engine/engines.js';
import { type EngineSettings, engineSettings } from '../engine/settings.js';
import { ImageBuildDriver } from '../images/image-builds.js';
import { type ImageLimits, imageLimitsFromEnv } from '../images/image-limits.js';
import { ImageIntake } from '../images/image-intake.js';
import { registryPorts } from '../images/registry.js';
import { imageUnpacker } from '../images/unpack-image.js';
import { ArtifactCache } from '../replicas/artifact-cache.js';
import { Artifacts } from '../replicas/artifacts.js';
import { type Runs } from '../system/runs.js';
import { findToolchain } from '../system/toolchain.js';
import { Trash } from '../system/trash.js';
import { Cgroups, findHierarchy } from './local/cgroups.js';
import { createLocalHosts } from './local/create.js';
import { imagesFault } from './local/image-tools.js';
import { LocalMachineDriver } from './local/machines/driver.js';
import { vpcResolvers } from './local/resolvers.js';
import { uplinkSettings } from './local/uplink-mode.js';
import { LocalNetworkDriver } from './local/vpcs.js';
import { type MachineDriver } from './machine-driver.js';
import { imagesFolder, probeDrivers, type DriverChoices } from './probe.js';
import { HostReplicaDriver } from './replica-driver.js';
import { UsageMeter } from '../usage/meter.js';
import { usageSettings } from '../usage/settings.js';
import { HostRunDriver, type RunDriver } from './run-driver.js';
import { type BuildHost, type ReplicaHost } from './sandbox.js';
import { SimulatedBuildHost } from './simulated/builds.js';
import { SimulatedMachineDriver } from './simulated/machines.js';
import { SimulatedNetworkDriver } from './simulated/networks.js';
import { SimulatedReplicaHost } from './simulated/replicas.js';
import { type BuildDriver, type Egress, type NetworkDriver, type ReplicaDriver } from './types.js';

/** The drivers of an agent, and why these. */
export interface AgentDrivers {
  builds: BuildDriver;
  /** What builds Dockerfiles, if anything does. */
  engines?: ContainerEngines;
  replicas: ReplicaDriver;
  /** In the same sandboxes as replicas. */
  jobs: RunDriver;
  /** Measures replicas on demand and job runs. */
  meter: UsageMeter;
  networks: NetworkDriver;
  machines: MachineDriver;
  choices: DriverChoices;
}

/** What one build may use. */
export interface BuildLimits {
  memoryBytes: number;
  cpus: number;
  processes: number;
  /** Source, dependencies and home together. */
  diskBytes: number;
  /** All steps together, milliseconds. */
  wallMs: number;
}

export const defaultBuildLimits: Readonly<BuildLimits> = {
  memoryBytes: 2 * 1024 ** 3,
  cpus: 2,
  processes: 512,
  diskBytes: 4 * 1024 ** 3,
  wallMs: 20 * 60_000,
};

export interface CreateDriversOptions {
  home: string;
  log: AgentLog;
  runs: Runs;
  egress: Egress | null;
  /** Default: by probe. */
  choices?: DriverChoices;
  buildLimits?: Partial<BuildLimits>;
  /** Default by `NEBO_BUILD_CACHE_APP` and `NEBO_BUILD_CACHE_MAX`. */
  buildCache?: Partial<CacheLimits>;
  /** Default by `NEBO_CONTAINER_ENGINE` and `NEBO_CONTAINER_ENGINE_NETWORK`. */
  engine?: EngineSettings;
  /** What images may be; default by `NEBO_IMAGE_…`. */
  imageLimits?: Partial<ImageLimits>;
  /** Unpacked artifacts kept, bytes; default 5 GiB. */
  cacheBytes?: number;
  /** Time between SIGTERM and SIGKILL of a replica, milliseconds; default 5 s. */
  graceMs?: number;
  /** Networks made in advance for replicas that somebody waits for; default 4, 0: none. */
  readyNetworks?: number;
  /** Folder of the images that the operator brings; default by `NEBO_IMAGES`. */
  images?: string;
  /** Time that a machine's guest has to shut down, milliseconds; default 30 s. */
  machineGraceMs?: number;
}

/** What the simulated machines' driver claims to hold: nothing is used up by a state. */
const boundless: RegionCapacity = { vcpu: 1_000_000, memory_mb: 1_000_000_000, disk_gb: 1_000_000_000 };

/** Makes the drivers of every area. This is the only place that knows the driver folders. */
export async function createDrivers(options: CreateDriversOptions): Promise<AgentDrivers> {
  const { home, log, runs, egress } = options;
  const choices = options.choices ?? (await probeDrivers());
  const tools = findToolchain();
  const limits = { ...defaultBuildLimits, ...options.buildLimits };
  const imageLimits = { ...imageLimitsFromEnv(), ...options.imageLimits };
  const images = new ArtifactCache(join(home, 'images'), imageLimits.cacheBytes, imageUnpacker(imageLimits));
  const built = new ArtifactCache(join(home, 'artifacts'), options.cacheBytes ?? 5 * 1024 ** 3);
  const cache = new Artifacts(built, images);
  const graceMs = options.graceMs ?? 5_000;
  // A wrong setting stops the start whatever driver it is for.
  const uplink = uplinkSettings(process.env);
  const resolvers = vpcResolvers(process.env);
  const networks: NetworkDriver =
    choices.networks.driver === 'local'
      ? new LocalNetworkDriver({ tag: runs.tag, uplink, resolvers, log })
      : new SimulatedNetworkDriver();
  const wantsLocal = choices.builds.driver === 'local' || choices.replicas.driver === 'local';
  const local = wantsLocal
    ? await createLocalHosts({
        home,
        log,
        tag: runs.tag,
        tools,
        egress,
        limits,
        plugs: networks.plugs,
        readyNetworks: options.readyNetworks ?? 4,
      })
    : null;
  const builds: BuildHost =
    choices.builds.driver === 'local'
      ? local!.builds
      : new SimulatedBuildHost({ tools, egress, wallMs: limits.wallMs });
  const replicas: ReplicaHost =
    choices.replicas.driver === 'local' ? local!.replicas : new SimulatedReplicaHost({ tools, egress });
  const meter = new UsageMeter({ file: join(home, 'usage'), settings: usageSettings(process.env), log });
  // Now, before the driver's start takes the groups of an earlier agent away.
  await meter.recover((name) => replicas.leftOverCpu?.(name) ?? Promise.resolve(null));
  const parts = { host: replicas, runs, cache, log, meter, graceMs };
  const trash = new Trash(join(home, 'trash'), log);
  const kept = new BuildCache(
    join(home, 'build-cache'),
    { ...cacheLimits(process.env), ...options.buildCache },
    trash,
    log,
  );
  const intake = new ImageIntake({
    cache: images,
    fault: () =>
      choices.replicas.driver === 'local'
        ? imagesFault(join(home, 'image-probe'))
        : Promise.resolve('it runs apps as plain processes (driver simulated)'),
  });
  const registries = registryAccess();
  const engines = new ContainerEngines(options.engine ?? engineSettings(process.env), log);
  const containers = new ContainerBuilds({
    ...{ engines, intake, limits, imageLimits, allow: registries.allow, log },
    ...{ dir: join(home, 'engine-builds'), tag: runs.tag },
    groups: new StepGroups(await ownGroups(`${runs.tag}-engine`), `nebo-${runs.tag}-engine`),
  });
  const made = { host: builds, runs, tools, cache: kept, trash, containers, log };
  return {
    builds: new ImageBuildDriver(new HostBuildDriver(choices.builds.driver, made), {
      ...registries,
      ...{ limits: imageLimits, intake, runs, log, wallMs: limits.wallMs },
    }),
    engines,
    replicas: new HostReplicaDriver(choices.replicas.driver, parts),
    jobs: new HostRunDriver(parts),
    meter,
    networks,
    machines:
      choices.machines.driver === 'local'
        ? await localMachines(options, networks)
        : new SimulatedMachineDriver({ dir: join(home, 'machines'), capacity: boundless }),
    choices,
  };
}

/** Registries are asked by the agent itself, like everything that strangers name: at public addresses, or where the operator says. */
function registryAccess(): { client: SafeClient; allow: AllowList } {
  const allow = parseAllowList(process.env['NEBO_SAFE_NET_ALLOW']);
  return { allow, client: createSafeClient({ allow, ports: registryPorts, httpsOnly: true }) };
}

/** Groups of their own: those of builds and replicas are emptied when an agent starts. */
async function ownGroups(tag: string): Promise<Cgroups | null> {
  const mounts = await readFile('/proc/self/mounts', 'utf8').catch(() => '');
  const hierarchy = process.getuid?.() === 0 ? await findHierarchy(mounts) : null;
  return hierarchy && new Cgroups(hierarchy, tag);
}

async function localMachines(
  { home, runs, log, images, machineGraceMs }: CreateDriversOptions,
  { taps }: NetworkDriver,
): Promise<MachineDriver> {
  const cgroups = await ownGroups(`${runs.tag}-vm`);
  return new LocalMachineDriver({
    ...{ dir: join(home, 'vms'), tag: runs.tag, images: images ?? imagesFolder(), taps, cgroups, log },
    ...(machineGraceMs === undefined ? {} : { graceMs: machineGraceMs }),
  });
}
