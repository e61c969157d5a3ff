import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Device, NetworkSpace, type Route } from './netns.js';
import { makeTables, type Table } from './nft.js';
import { type UplinkMode } from './uplink-mode.js';

/** 100.64.0.0/14 in pieces of four addresses; replicas have theirs from 100.96.0.0/12. */
const pieces = 2 ** 16;
const base = (100 << 24) | (64 << 16);
const dotted = (value: number) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.');

/** Addresses of the link between host and uplink. */
export interface Transfer {
  host: string;
  uplink: string;
}

export interface UplinkHostParts {
  /** Six hex digits of the agent's home: names on the host carry it. */
  tag: string;
  /** Folder that all agents of this host share. */
  root: string;
  mode: UplinkMode;
  /** The host's own network namespace; tests have another one play it. */
  host: NetworkSpace;
  uplink: NetworkSpace;
}

/**
 * The host's end of the uplink: a link, routes of the addresses that are in use, and rules that let nothing in to the host
 * itself and nothing through it but what the mode says. Of the host's own firewall nothing is read or changed.
 */
export class UplinkHost {
  /** The host's device. */
  readonly device: string;
  private seal: string | null = null;

  constructor(private readonly parts: UplinkHostParts) {
    this.device = `nbup${parts.tag}`;
  }

  /** Makes or mends the link. @throws Error when the host's tools fail, or the interface of the mode is not there */
  async link(): Promise<Transfer> {
    const { host, uplink, mode } = this.parts;
    const transfer = await this.transfer();
    const devices = await host.show<Device>('address', 'show');
    if (typeof mode === 'object' && !devices.some(({ ifname }) => ifname === mode.through))
      throw new Error(`NEBO_UPLINK names the interface ${mode.through}, which this host does not have`);
    // Rules first: a device must not be there without them.
    this.seal = await makeTables(host, [this.table()], this.seal);
    if (!devices.some(({ ifname }) => ifname === this.device))
      await host.ip([`link add ${this.device} type veth peer name host0 netns ${uplink.name!}`]);
    await host.ip([`addr replace ${transfer.host}/30 dev ${this.device}`, `link set ${this.device} up`]);
    await uplink.ip([
      `addr replace ${transfer.uplink}/30 dev host0`,
      'link set host0 up',
      `route replace default via ${transfer.host} dev host0`,
    ]);
    const onward = await this.onward();
    if (onward.length > 0)
      await host.set(
        '1',
        [this.device, ...onward].map((device) => `ipv4/conf/${device}/forwarding`),
      );
    return transfer;
  }

  /** Ranges in which the host has addresses: it and its neighbours are not for machines. */
  async ranges(): Promise<string[]> {
    const devices = await this.parts.host.show<Device>('address', 'show');
    return devices
      .filter(({ ifname }) => ifname !== this.device)
      .flatMap(({ addr_info }) => addr_info ?? [])
      .filter(({ family }) => family === 'inet')
      .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
  }

  /**
   * Routes these addresses to the uplink, and no others.
   * @returns those that belong to somebody else on this host
   */
  async route(addresses: readonly string[], { uplink }: Transfer): Promise<Set<string>> {
    const { host } = this.parts;
    const routes = await host.show<Route>('route', 'show');
    const mine = new Set(routes.filter(({ dev }) => dev === this.device).map(({ dst }) => dst));
    const others = new Set(routes.filter(({ dev }) => dev !== this.device).map(({ dst }) => dst));
    for (const { addr_info } of await host.show<Device>('address', 'show'))
      for (const { local } of addr_info ?? []) others.add(local);
    const wanted = new Set(addresses.filter((address) => !others.has(address)));
    await host.ip([
      ...[...mine]
        .filter((dst) => !dst.includes('/') && !wanted.has(dst))
        .map((dst) => `route del ${dst} dev ${this.device}`),
      ...[...wanted]
        .filter((dst) => !mine.has(dst))
        .map((dst) => `route add ${dst}/32 via ${uplink} dev ${this.device}`),
    ]);
    return new Set(addresses.filter((address) => others.has(address)));
  }

  /** Takes everything away that this agent made on the host. */
  async remove(): Promise<void> {
    const { host, root } = this.parts;
    const devices = await host.show<Device>('link', 'show');
    if (devices.some(({ ifname }) => ifname === this.device)) await host.ip([`link del ${this.device}`]);
    const { family, name } = this.table();
    await host.run(['nft', '-f', '-'], `table ${family} ${name}\ndelete table ${family} ${name}\n`);
    this.seal = null;
    for (const file of await readdir(join(root, 'transfers')).catch(() => []))
      if ((await this.holder(file)) === this.parts.tag)
        await rm(join(root, 'transfers', file), { force: true });
  }

  private table(): Table {
    const { tag, mode } = this.parts;
    const { device } = this;
    const between: Record<string, string> = {
      none: '',
      masquerade: `iifname "${device}" accept
    oifname "${device}" ct state established,related accept`,
      through:
        typeof mode === 'object'
          ? `iifname "${device}" oifname "${mode.through}" accept
    iifname "${mode.through}" oifname "${device}" accept`
          : '',
    };
    const way = typeof mode === 'object' ? 'through' : mode === 'masquerade' ? mode : 'none';
    const masquerade = `
  chain postrouting {
    type nat hook postrouting priority 100; policy accept;
    iifname "${device}" oifname != "${device}" masquerade
  }`;
    return {
      family: 'inet',
      name: `nebo_uplink_${tag}`,
      body: `
  chain input {
    type filter hook input priority 0; policy accept;
    iifname "${device}" ct state established,related accept
    iifname "${device}" drop
  }
  chain forward {
    type filter hook forward priority 0; policy accept;
    ${between[way]}
    iifname "${device}" drop
    oifname "${device}" drop
  }${mode === 'masquerade' ? masquerade : ''}`,
      elements: {},
    };
  }

  /** Devices between which and the uplink the host passes packets on: only for them, so it is no router for others. */
  private async onward(): Promise<string[]> {
    const { host, mode } = this.parts;
    if (typeof mode === 'object') return [mode.through];
    if (mode !== 'masquerade') return [];
    const routes = await host.show<Route>('route', 'show', 'default');
    return [...new Set(routes.flatMap(({ dev }) => dev ?? []))];
  }

  /** The piece of 100.64.0.0/14 that this agent holds: files say who has which, since two agents of a host must not meet. */
  private async transfer(): Promise<Transfer> {
    const { root, tag, host } = this.parts;
    const dir = join(root, 'transfers');
    await mkdir(dir, { recursive: true, mode: 0o755 });
    for (const file of await readdir(dir))
      if ((await this.holder(file)) === tag) return transferAt(Number(file));
    const used = new Set(
      (await host.show<Device>('address', 'show')).flatMap(
        ({ addr_info }) => addr_info?.map(({ local }) => local) ?? [],
      ),
    );
    const first = createHash('sha256').update(tag).digest().readUInt32BE(0) % pieces;
    for (let tried = 0; tried < pieces; tried++) {
      const number = (first + tried) % pieces;
      const transfer = transferAt(number);
      if (used.has(transfer.host)) continue;
      try {
        await writeFile(join(dir, String(number)), tag, { flag: 'wx', mode: 0o644 });
        return transfer;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
    }
    throw new Error('no piece of 100.64.0.0/14 is free for the uplink');
  }

  private holder(file: string): Promise<string> {
    return readFile(join(this.parts.root, 'transfers', file), 'utf8').catch(() => '');
  }
}

function transferAt(number: number): Transfer {
  const net = base + number * 4;
  return { host: dotted(net + 1), uplink: dotted(net + 2) };
}
