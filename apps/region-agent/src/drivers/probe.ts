import { access, constants, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { findHierarchy } from './local/cgroups.js';
import { tool } from './local/exec.js';
import { vpcFails } from './local/vpc-probe.js';
import { type DriverName } from './types.js';

export type DriverArea = 'builds' | 'replicas' | 'networks' | 'machines';

/** Which driver an area uses here, and why: what `nebo doctor` shows. */
export interface DriverChoice {
  driver: DriverName;
  isolated: boolean;
  /** Nothing of it is real: states and an address book, so there is nothing to isolate either. */
  simulated: boolean;
  why: string;
}

export type DriverChoices = Record<DriverArea, DriverChoice>;

/**
 * Looks at what this host has and chooses a driver per area. `NEBO_DRIVERS` (`replicas=simulated,builds=local`)
 * overrides; other areas in it are somebody else's.
 * @throws Error when it asks for `local` and parts are missing, or for a driver that does not exist
 */
export async function probeDrivers(
  env: Record<string, string | undefined> = process.env,
): Promise<DriverChoices> {
  const asked = parseDrivers(env['NEBO_DRIVERS'] ?? '');
  const sandboxes: Host = {
    without: 'plain processes',
    missing: await missingParts(sandboxPrograms, [sandboxFails, networkFails]),
    words: async () => `bubblewrap, network namespaces and nftables work here; ${await limitWords()}`,
  };
  const networks: Host = {
    without: 'an address book without a network',
    unreal: true,
    missing: await missingParts(networkPrograms, [vpcFails]),
    words: async () => 'network namespaces, bridges, nftables and dnsmasq work here',
  };
  const machines: Host = {
    without: 'states and timings without a machine',
    unreal: true,
    missing: await missingParts(machinePrograms, [() => machinesFail(env)]),
    words: async () => 'QEMU and the tiny image are here',
  };
  const choose = async (
    area: DriverArea,
    { without, missing, words, unreal = false }: Host,
  ): Promise<DriverChoice> => {
    const want = asked.get(area);
    if (want !== undefined && want !== 'local' && want !== 'simulated')
      throw new Error(`NEBO_DRIVERS: ${area} has the drivers local and simulated, not "${want}"`);
    if (want === 'local' && missing.length > 0)
      throw new Error(`NEBO_DRIVERS asks for ${area}=local, but this host lacks: ${missing.join('; ')}`);
    if (want === 'simulated')
      return {
        driver: 'simulated',
        isolated: false,
        simulated: unreal,
        why: `${without}, asked for by NEBO_DRIVERS`,
      };
    if (missing.length > 0)
      return {
        driver: 'simulated',
        isolated: false,
        simulated: unreal,
        why: `${without}, because this host lacks: ${missing.join('; ')}`,
      };
    return { driver: 'local', isolated: true, simulated: false, why: await words() };
  };
  const connected = await choose('networks', networks);
  if (connected.driver !== 'local') machines.missing.push('networks by the driver local');
  const replicas = { ...sandboxes, without: 'plain processes, whose use is not measured and costs nothing' };
  return {
    builds: await choose('builds', sandboxes),
    replicas: await choose('replicas', replicas),
    networks: connected,
    machines: await choose('machines', machines),
  };
}

/** What a host means for an area: what `local` lacks, in words for what is there and for what is used otherwise. */
interface Host {
  without: string;
  /** Without it nothing is real; builds and replicas are real processes all the same. */
  unreal?: boolean;
  missing: string[];
  words(): Promise<string>;
}

const sandboxPrograms = ['bwrap', 'setpriv', 'prlimit', 'ip', 'nft', 'du'];
const networkPrograms = ['ip', 'nft', 'dnsmasq', 'conntrack'];
const machinePrograms = ['qemu-system-x86_64', 'qemu-img', 'ip', 'setpriv', 'unshare'];

/** The folder of images that the operator brings: `NEBO_IMAGES`, else `images` in the data folder. */
export function imagesFolder(env: Record<string, string | undefined> = process.env): string {
  return resolve(env['NEBO_IMAGES'] || join(env['NEBO_HOME'] || '.nebo', 'images'));
}

/** `a=b,c=d` as a map. @throws Error when it is not of this form */
export function parseDrivers(text: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const part of text.split(',').map((piece) => piece.trim())) {
    if (part === '') continue;
    const [area, driver, ...rest] = part.split('=');
    if (!area || !driver || rest.length > 0)
      throw new Error(`NEBO_DRIVERS: "${part}" is not of the form area=driver`);
    found.set(area, driver);
  }
  return found;
}

/** What `local` lacks here; the last checks really make a sandbox and a namespace, since a program alone proves nothing. */
async function missingParts(
  programs: readonly string[],
  checks: readonly (() => Promise<string | null>)[],
): Promise<string[]> {
  if (process.platform !== 'linux') return [`Linux (this is ${process.platform})`];
  if (process.getuid?.() !== 0) return ['root rights (the agent runs as an ordinary user)'];
  const found = await Promise.all(programs.map(onPath));
  const missing = programs.filter((_, index) => !found[index]).map((name) => `the program ${name}`);
  if (missing.length > 0) return missing;
  const faults: (string | null)[] = [];
  // One after the other: two probes of one kind would meet under one name.
  for (const check of checks) faults.push(await check());
  return faults.filter((fault) => fault !== null);
}

async function onPath(name: string): Promise<boolean> {
  for (const folder of ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'])
    if (
      await access(`${folder}/${name}`, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return true;
  return false;
}

async function sandboxFails(): Promise<string | null> {
  const args = [
    '--unshare-pid',
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-net',
    '--ro-bind',
    '/',
    '/',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
  ];
  const user = [
    'setpriv',
    '--reuid',
    '200000',
    '--regid',
    '200000',
    '--clear-groups',
    '--no-new-privs',
    'true',
  ];
  return tool(['bwrap', ...args, '--', ...user]).then(
    () => null,
    (error: Error) => `a sandbox that starts (${error.message})`,
  );
}

async function networkFails(): Promise<string | null> {
  const name = `nebo-probe-${process.pid}`;
  try {
    await tool(['ip', 'netns', 'add', name]);
    await tool(['ip', 'netns', 'exec', name, 'nft', 'add table inet nebo']);
    return null;
  } catch (error) {
    return `network namespaces with nftables (${(error as Error).message})`;
  } finally {
    await tool(['ip', 'netns', 'del', name]).catch(() => undefined);
  }
}

/** Machines need an image, and the probe of the accelerator needs this one. */
async function machinesFail(env: Record<string, string | undefined>): Promise<string | null> {
  if (process.arch !== 'x64') return `a processor of x86-64 (this is ${process.arch})`;
  const image = join(imagesFolder(env), 'tiny-1.qcow2.json');
  return access(image).then(
    () => null,
    () => `the tiny image in ${imagesFolder(env)} (npm run tiny-image)`,
  );
}

async function limitWords(): Promise<string> {
  const hierarchy = await findHierarchy(await readFile('/proc/self/mounts', 'utf8')).catch(() => null);
  if (!hierarchy)
    return 'no cgroup can be written, so only the number of processes and file sizes are limited';
  const writable = await access(hierarchy.roots.memory, constants.W_OK).then(
    () => true,
    () => false,
  );
  return writable
    ? `limits by cgroup v${hierarchy.version}`
    : 'cgroups are read-only, so memory and cpu are not limited';
}
