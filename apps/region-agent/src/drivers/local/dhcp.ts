import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type VpcSpec } from '@nebo/contracts';
import { signal } from '../../system/processes.js';
import { sleep } from '../../system/timing.js';
import { keepFile } from './files.js';
import { type NetworkSpace } from './netns.js';

/** What the server was told last, written once it had been told. */
const told = 'hosts.told';

/**
 * Has DHCP give exactly the ports' addresses. A server that runs reads changed ports anew. It is replaced only when an
 * address went from one MAC to another: it would keep that address for the old one until the lease ends.
 * @param dir folder of this VPC, which the server (not root) can read
 * @param resolvers DNS resolvers that leases name; with none, leases name none
 * @throws Error when the server does not start
 */
export async function serveAddresses(
  space: NetworkSpace,
  dir: string,
  { subnet, gateway, ports }: VpcSpec,
  resolvers: readonly string[],
): Promise<void> {
  const hosts = ports.map(({ mac, address }) => `${mac},${address}\n`).join('');
  await keepFile(join(dir, 'hosts'), hosts);
  const settings = [subnet, gateway, ...resolvers].join(' ');
  const range = `${settings}\n${hosts}`;
  const before = await readFile(join(dir, told), 'utf8').catch(() => '');
  const running = await serverOf(dir);
  const moved = await leasedToOthers(dir, ports);
  // One that serves a namespace of this name that is lost serves nobody.
  const here = running !== null && (await space.holds(running));
  if (here && !moved && before.split('\n', 1)[0] === settings) {
    if (before === range) return;
    signal(running!, 'SIGHUP');
    await keepFile(join(dir, told), range);
    return;
  }
  if (running !== null) await end(running);
  // All it knows of leases it knows from the ports.
  await rm(join(dir, 'leases'), { force: true });
  const [network] = subnet.split('/');
  await space.run([
    ...['dnsmasq', '--conf-file=/dev/null', '--user=nobody', '--port=0', '--interface=br0'],
    ...['--except-interface=lo', '--bind-interfaces', '--no-ping', '--dhcp-authoritative'],
    ...[`--dhcp-range=${network},static,${maskOf(subnet)},1h`, `--dhcp-option=option:router,${gateway}`],
    ...(resolvers.length > 0 ? [`--dhcp-option=option:dns-server,${resolvers.join(',')}`] : []),
    ...[`--dhcp-hostsfile=${join(dir, 'hosts')}`, `--dhcp-leasefile=${join(dir, 'leases')}`],
    `--pid-file=${join(dir, 'dhcp.pid')}`,
  ]);
  await keepFile(join(dir, told), range);
}

/** Whether a lease gives a port's address to another MAC. */
async function leasedToOthers(dir: string, ports: VpcSpec['ports']): Promise<boolean> {
  const leases = await readFile(join(dir, 'leases'), 'utf8').catch(() => '');
  if (leases === '') return false;
  const owners = new Map(ports.map(({ mac, address }) => [address, mac]));
  return leases.split('\n').some((line) => {
    const [, mac, address] = line.split(' ');
    const owner = address === undefined ? undefined : owners.get(address);
    return owner !== undefined && owner !== mac;
  });
}

/** The pid of the VPC's DHCP server, null when it does not run: a number in a file alone may be somebody else's by now. */
async function serverOf(dir: string): Promise<number | null> {
  const file = join(dir, 'dhcp.pid');
  const pid = Number(await readFile(file, 'utf8').catch(() => ''));
  if (!Number.isInteger(pid) || pid < 2) return null;
  const command = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
  return command.includes(`--pid-file=${file}\0`) ? pid : null;
}

async function end(pid: number): Promise<void> {
  signal(pid, 'SIGKILL');
  for (let waited = 0; waited < 5_000; waited += 5) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    if (command === '') return;
    await sleep(5);
  }
  throw new Error('the DHCP server does not end');
}

/** Netmask of a range in CIDR form. */
const maskOf = (subnet: string): string => {
  const bits = (0xffffffff << (32 - Number(subnet.split('/')[1]))) >>> 0;
  return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 255).join('.');
};
