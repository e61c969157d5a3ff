import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type RegionThing } from '@nebo/contracts';
import { type Device, NetworkSpace, type Route } from './netns.js';
import { linkOf } from './vpc-rules.js';

export interface NetworkPlaces {
  /** Before the VPC's id, in the name of its namespace. */
  prefix: string;
  /** Folder of this agent's networks: one folder for each, and what the uplink keeps. */
  dir: string;
  /** The namespace between the VPCs and the world. */
  uplink: NetworkSpace;
}

const isId = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);

/** What lies on this host of networks, looked at itself: whatever any driver remembers of it. */
export async function networkThings({ prefix, dir, uplink }: NetworkPlaces): Promise<RegionThing[]> {
  const things: RegionThing[] = [];
  const add = (kind: string, id: string, vpc: string | undefined) =>
    things.push({ kind, id, of: vpc !== undefined && isId(vpc) ? `vpc:${vpc}` : null, state: null });
  const spaces = (await names('/run/netns')).filter((name) => name.startsWith(prefix));
  const folders = (await names(dir)).filter(isId);
  for (const name of spaces) {
    const vpc = name.slice(prefix.length);
    add('namespace', name, vpc);
    const devices = await new NetworkSpace(name).show<Device>('link', 'show').catch(() => []);
    for (const { ifname } of devices) if (/^p[0-9a-f]{12}$/.test(ifname)) add('link', ifname, vpc);
  }
  for (const vpc of folders) add('folder', join(dir, vpc), vpc);
  for (const { pid, vpc } of await servers(dir)) add('process', `dnsmasq ${pid}`, vpc);
  const vpcs = new Map(
    [...folders, ...spaces.map((name) => name.slice(prefix.length))].map((id) => [linkOf(id), id]),
  );
  const routes = (await uplink.exists()) ? await uplink.show<Route>('route', 'show') : [];
  for (const { dst, dev } of routes)
    if (dev?.startsWith('v') && !dst.includes('/')) add('address', dst, vpcs.get(dev));
  return things;
}

const names = (dir: string) => readdir(dir).catch(() => [] as string[]);

/** DHCP servers by their command lines, also those that no file tells of any more. */
async function servers(dir: string): Promise<{ pid: string; vpc: string }[]> {
  const found: { pid: string; vpc: string }[] = [];
  for (const pid of (await names('/proc')).filter((name) => /^\d+$/.test(name))) {
    const words = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    if (!words.startsWith('dnsmasq\0')) continue;
    const file = words.split('\0').find((word) => word.startsWith(`--pid-file=${dir}/`));
    if (file) found.push({ pid, vpc: file.slice(`--pid-file=${dir}/`.length).split('/')[0]! });
  }
  return found;
}
