import { access, constants, readFile } from 'node:fs/promises';
import { findHierarchy } from './local/cgroups.js';
import { tool } from './local/exec.js';
import { type DriverName } from './types.js';

export type DriverArea = 'builds' | 'replicas' | 'networks' | 'machines';

/** Which driver an area uses here, and why: what `nebo doctor` shows. */
export interface DriverChoice {
  driver: DriverName;
  isolated: boolean;
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
    missing: await missingParts(networkPrograms, [networkFails]),
    words: async () => 'network namespaces, nftables and dnsmasq work here',
  };
  const machines: Host = {
    without: 'states and timings without a machine',
    missing: ['a driver that runs machines (there is none yet)'],
    words: () => Promise.resolve(''),
  };
  const choose = async (area: DriverArea, { without, missing, words }: Host): Promise<DriverChoice> => {
    const want = asked.get(area);
    if (want !== undefined && want !== 'local' && want !== 'simulated')
      throw new Error(`NEBO_DRIVERS: ${area} has the drivers local and simulated, not "${want}"`);
    if (want === 'local' && missing.length > 0)
      throw new Error(`NEBO_DRIVERS asks for ${area}=local, but this host lacks: ${missing.join('; ')}`);
    if (want === 'simulated')
      return { driver: 'simulated', isolated: false, why: `${without}, asked for by NEBO_DRIVERS` };
    if (missing.length > 0)
      return {
        driver: 'simulated',
        isolated: false,
        why: `${without}, because this host lacks: ${missing.join('; ')}`,
      };
    return { driver: 'local', isolated: true, why: await words() };
  };
  return {
    builds: await choose('builds', sandboxes),
    replicas: await choose('replicas', sandboxes),
    networks: await choose('networks', networks),
    machines: await choose('machines', machines),
  };
}

/** What a host means for an area: what `local` lacks, in words for what is there and for what is used otherwise. */
interface Host {
  without: string;
  missing: string[];
  words(): Promise<string>;
}

const sandboxPrograms = ['bwrap', 'setpriv', 'prlimit', 'ip', 'nft', 'du'];
const networkPrograms = ['ip', 'nft', 'dnsmasq'];

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
