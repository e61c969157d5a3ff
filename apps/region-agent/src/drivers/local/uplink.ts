import { type Device, NetworkSpace, type Route } from './netns.js';
import { makeTables, type Table } from './nft.js';
import { UplinkHost } from './uplink-host.js';
import { type UplinkSettings, withoutOverlaps } from './uplink-mode.js';
import { linkOf } from './vpc-rules.js';

/**
 * Next hop of a VPC's router, the same in all of them: it is never asked for by ARP and stands in no packet, so links need
 * no addresses of their own.
 */
const nextHop = '169.254.0.1';

/** A router of a VPC may send what comes from an address of its own, and to nobody whom it must not reach. */
const rules = `
  set owned {
    type ifname . ipv4_addr
  }
  set floating {
    type ipv4_addr
  }
  set denied {
    type ipv4_addr
    flags interval
  }
  chain input {
    type filter hook input priority 0; policy drop;
    iifname "lo" accept
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    iifname "v*" iifname . ip saddr != @owned drop
    ct state established,related accept
    ip daddr @floating accept
    iifname "v*" ip daddr @denied drop
    iifname "v*" oifname "host0" accept
  }
`;

export interface UplinkOptions extends UplinkSettings {
  tag: string;
  /** Folder that all agents of this host share; what is kept of this agent's uplink lies in a folder of its tag. */
  root: string;
  /** Namespace that plays the host, for tests; default: the agent's own. */
  host?: string;
}

/** What a VPC got. */
export interface Given {
  held: ReadonlySet<string>;
  /** Why an address was not given, or does not work everywhere. */
  faults: ReadonlyMap<string, string>;
}

/** How long what was made is taken to be there still, milliseconds. */
const freshMs = 20_000;

/**
 * The namespace between the VPCs of one agent and the world. Each VPC with a floating IP or a gateway has a link to it, and
 * every address in use is a route over the link of the VPC that has it: the routes are the memory of who has what.
 */
export class Uplink {
  readonly space: NetworkSpace;
  private readonly host: UplinkHost | null;
  /** Addresses by link. */
  private readonly owners = new Map<string, Set<string>>();
  /** Of them, those that the host uses itself. */
  private foreign = new Set<string>();
  /** Addresses that were given back and whose connections are still to be ended. */
  private readonly leaving = new Set<string>();
  private seal: string | null = null;
  private freshUntil = 0;
  private turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: UplinkOptions) {
    const { tag, root, mode, host = null } = options;
    this.space = new NetworkSpace(`neboup-${tag}`);
    this.host =
      mode === 'isolated'
        ? null
        : new UplinkHost({ tag, root, mode, host: new NetworkSpace(host), uplink: this.space });
  }

  /** Reads from the region itself which VPC has which addresses. */
  async start(): Promise<void> {
    if (!(await this.space.exists())) return;
    for (const { dst, dev } of await this.space.show<Route>('route', 'show')) {
      if (!dev?.startsWith('v') || dst.includes('/')) continue;
      this.owners.set(dev, (this.owners.get(dev) ?? new Set()).add(dst));
    }
  }

  /**
   * Gives a VPC these addresses and no others, with a link to it. Looks at what is there only once in a while when nothing
   * is new.
   * @throws Error when the host's tools fail; the next call mends what is half made
   */
  give(vpcId: string, vpc: NetworkSpace, addresses: readonly string[]): Promise<Given> {
    return this.inTurn(async () => {
      const link = linkOf(vpcId);
      const had = this.owners.get(link) ?? new Set<string>();
      const faults = new Map<string, string>();
      for (const address of addresses)
        if ([...this.owners].some(([other, theirs]) => other !== link && theirs.has(address)))
          faults.set(address, 'another network of this region still has it');
      const held = new Set(addresses.filter((address) => !faults.has(address)));
      if (held.size === 0 && had.size === 0) return { held, faults };
      const same = held.size === had.size && [...held].every((address) => had.has(address));
      this.owners.set(link, held);
      for (const address of had) if (!held.has(address)) this.leaving.add(address);
      const look = !same || Date.now() > this.freshUntil;
      if (look) {
        this.freshUntil = 0;
        await this.make();
      }
      const joined = held.size > 0 ? await this.join(link, vpc, look) : await this.part(link);
      if (look || joined) await this.routes();
      this.freshUntil = Math.max(this.freshUntil, look ? Date.now() + freshMs : 0);
      for (const address of held)
        if (this.foreign.has(address))
          faults.set(address, 'the host of this region uses it for something else');
      return { held, faults };
    });
  }

  /** What a VPC has, whether it works or not. */
  heldBy(vpcId: string): ReadonlySet<string> {
    return this.owners.get(linkOf(vpcId)) ?? new Set();
  }

  /** Takes a VPC's link and addresses away. */
  drop(vpcId: string): Promise<void> {
    return this.inTurn(async () => {
      const link = linkOf(vpcId);
      const had = this.owners.get(link) ?? new Set<string>();
      this.owners.delete(link);
      for (const address of had) this.leaving.add(address);
      if (!(await this.space.exists())) return;
      // Not left to the end of the namespace, which may come later than a new network of this id.
      await this.part(link);
      if (this.leaving.size === 0) return;
      this.freshUntil = 0;
      await this.make();
      await this.routes();
    });
  }

  /** Takes the uplink away, on the host too. */
  clear(): Promise<void> {
    return this.inTurn(async () => {
      this.owners.clear();
      this.leaving.clear();
      this.freshUntil = 0;
      this.seal = null;
      await this.host?.remove();
      await this.space.remove();
    });
  }

  /** Namespace and rules, with the addresses as they are now known. */
  private async make(): Promise<void> {
    if (!(await this.space.exists())) {
      await this.space.create();
      this.seal = null;
    }
    const ranges = (await this.host?.ranges()) ?? [];
    this.seal = await makeTables(this.space, [this.table(ranges)], this.seal);
    await this.space.ip(['link set lo up']);
    await this.space.set('1', ['ipv4/ip_forward']);
    await this.space.trySet('1', ['ipv6/conf/all/disable_ipv6']);
  }

  /** @returns whether the link had to be made */
  private async join(link: string, vpc: NetworkSpace, look: boolean): Promise<boolean> {
    const [inner, outer] = await Promise.all([find(vpc, 'up0'), find(this.space, link)]);
    const whole = inner !== null && outer !== null;
    if (whole && !look) return false;
    if (!whole) {
      // One end without the other is a leftover of another life of that namespace.
      if (inner) await vpc.ip(['link del up0']);
      if (outer) await this.space.ip([`link del ${link}`]);
      await vpc.ip([`link add up0 type veth peer name ${link} netns ${this.space.name!}`]);
    }
    const [up0, other] = await Promise.all([find(vpc, 'up0'), find(this.space, link)]);
    // Nobody answers ARP for a floating IP: the router translates it before it looks for whom it is.
    const neighbours = [...this.owners.get(link)!].map(
      (address) => `neigh replace ${address} lladdr ${up0!.address!} dev ${link} nud permanent`,
    );
    await this.space.ip([`link set ${link} up`, ...neighbours]);
    await vpc.ip([
      'link set up0 up',
      `neigh replace ${nextHop} lladdr ${other!.address!} dev up0 nud permanent`,
      `route replace default via ${nextHop} dev up0 onlink`,
    ]);
    return !whole;
  }

  /** Takes a VPC's link away. @returns whether there was one */
  private async part(link: string): Promise<boolean> {
    if (!(await find(this.space, link))) return false;
    await this.space.ip([`link del ${link}`]);
    return true;
  }

  private async routes(): Promise<void> {
    const wanted = new Map(
      [...this.owners].flatMap(([link, held]) => [...held].map((address) => [address, link])),
    );
    const links = new Set((await this.space.show<Device>('link', 'show')).map(({ ifname }) => ifname));
    const present = (await this.space.show<Route>('route', 'show')).filter(({ dev }) => dev?.startsWith('v'));
    const there = new Map(present.map(({ dst, dev }) => [dst, dev!]));
    await this.space.ip([
      ...present
        .filter(({ dst, dev }) => wanted.get(dst) !== dev)
        .map(({ dst, dev }) => `route del ${dst} dev ${dev!}`),
      // The link of a network that was not looked at yet may be lost: its turn comes.
      ...[...wanted]
        .filter(([address, link]) => links.has(link) && there.get(address) !== link)
        .map(([address, link]) => `route add ${address}/32 dev ${link}`),
    ]);
    if (this.host) this.foreign = await this.host.route([...wanted.keys()], await this.host.link());
    for (const address of this.leaving) {
      // Its connections are not the next one's.
      await this.space.forget(address, ['orig-src', 'orig-dst']);
      this.leaving.delete(address);
    }
  }

  private table(hostRanges: readonly string[]): Table {
    const held = [...this.owners].flatMap(([link, addresses]) =>
      [...addresses].map((address) => ({ link, address })),
    );
    return {
      family: 'inet',
      name: 'nebo',
      body: rules,
      elements: {
        owned: { kind: 'set', items: held.map(({ link, address }) => `${link} . ${address}`) },
        floating: { kind: 'set', items: held.map(({ address }) => address) },
        denied: { kind: 'set', items: withoutOverlaps([...this.options.denied, ...hostRanges]) },
      },
    };
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.turn.then(work);
    this.turn = turn.catch(() => undefined);
    return turn;
  }
}

async function find(space: NetworkSpace, device: string): Promise<Device | null> {
  return (await space.show<Device>('link', 'show')).find(({ ifname }) => ifname === device) ?? null;
}
