import { readdir, readFile, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type RegionThing, type VpcFacts, type VpcSpec } from '@nebo/contracts';
import { type AgentLog, silentLog } from '../../agent-log.js';
import { settledWithin } from '../../system/timing.js';
import { addressBookFault } from '../address-book.js';
import { type PublicAddress, publicAddresses } from '../floating.js';
import {
  type NetworkDriver,
  NetworkMissing,
  type PortTap,
  type PortTaps,
  type VpcObservation,
} from '../types.js';
import { serveAddresses } from './dhcp.js';
import { keepFile } from './files.js';
import { NetworkSpace } from './netns.js';
import { held, listRules, makeTables } from './nft.js';
import { Uplink } from './uplink.js';
import { type UplinkSettings } from './uplink-mode.js';
import { VpcPlugs } from './vpc-plugs.js';
import { makeBridge, openDoor, removeDoors } from './vpc-links.js';
import { doorOf, routerTable, vpcTables } from './vpc-rules.js';
import { networkThings } from './vpc-things.js';

/** What is kept of a VPC beside its namespace, so that the next agent knows what it found. */
interface Kept {
  generation: number;
  /** Of the rules, see `makeTables`. */
  seal: string | null;
  /** Devices of the ports that it had: one that is here and not wanted any more is taken away. */
  doors: string[];
  /** Public addresses whose connections are still to be ended. */
  leaving: string[];
}

export interface LocalNetworkOptions {
  /** Six hex digits of the agent's home. */
  tag: string;
  /** Folder of configurations, shared by all agents of this host; readable by the DHCP server, which is not root. */
  root?: string;
  uplink: UplinkSettings;
  /** DNS resolvers that machines are told of, IPv4; default: none. */
  resolvers?: readonly string[];
  /** Namespace that plays the host, for tests; default: the agent's own. */
  host?: string;
  log?: AgentLog;
  /** How long a machine's interface waits for its VPC, milliseconds; default 30 s. */
  waitMs?: number;
}

/**
 * One network namespace per VPC with a bridge, rules, a DHCP server that knows the ports and nobody else, and a link to the
 * uplink where an address leads outside. Names come from the tag of the agent's home and the VPC's id, so that a killed
 * agent's networks are found again. Hosts join by a device whose other end is on the bridge (`tap`, `plug`).
 */
export class LocalNetworkDriver implements NetworkDriver, PortTaps {
  readonly name = 'local';
  readonly isolated = true;
  readonly taps: PortTaps = this;
  readonly plugs: VpcPlugs;
  private readonly root: string;
  private readonly tag: string;
  private readonly uplink: Uplink;
  private readonly log: AgentLog;
  /** One change of an id after the other. */
  private readonly turns = new Map<string, Promise<unknown>>();
  /** VPCs that hosts may join, and who waits for another one. */
  private readonly made = new Set<string>();
  private readonly waiting = new Map<string, Set<() => void>>();

  constructor(private readonly options: LocalNetworkOptions) {
    const { tag, root = '/run/nebo-networks', uplink, host, log = silentLog } = options;
    this.root = root;
    this.tag = tag;
    this.log = log;
    this.plugs = new VpcPlugs({
      whenMade: (id, signal) => this.whenMade(id, signal),
      inTurn: (id, work) => this.inTurn(id, work),
      spaceOf: (id) => this.space(id),
      drop: (vpcId, portId) => this.drop(vpcId, portId),
      log,
    });
    this.uplink = new Uplink({ ...uplink, tag, root, ...(host === undefined ? {} : { host }) });
  }

  /** What an earlier agent left stays: it is adopted by `ensure`, or removed when it is not wanted. */
  async start(): Promise<void> {
    await this.uplink.start();
    for (const { id, state } of await this.list()) if (state === 'active') this.made.add(id);
  }

  /** Name of a VPC's namespace, for what joins it. */
  namespaceOf(id: string): string {
    return `nebovpc-${this.tag}-${id}`;
  }

  ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation> {
    return this.inTurn(id, async () => {
      const facts: VpcFacts = {
        driver: this.name,
        real: true,
        ports: spec.ports.length,
        floating_ips: [],
        faults: {},
      };
      const fault = checkedId(id) ?? addressBookFault(spec);
      if (fault !== null) return { id, generation, state: 'error', reason: fault, facts };
      const space = this.space(id);
      const kept = (await this.kept(id)) ?? { generation: 0, seal: null, doors: [], leaving: [] };
      if (!(await space.exists())) await space.create();
      await makeBridge(space, spec);
      const { good, faults } = publicAddresses(spec);
      const given = await this.give(id, good);
      const ways = good.filter(({ address }) => given.held.has(address));
      const seal = await this.rule(id, spec, ways, kept);
      const open = await removeDoors(space, kept.doors, spec.ports);
      await serveAddresses(space, this.dir(id), spec, this.options.resolvers ?? []);
      await this.plugs.mend(id, spec);
      const doors = [...spec.ports.map((port) => doorOf(port.id)), ...open];
      await this.keep(id, { generation, seal, doors, leaving: [] });
      this.joinable(id);
      for (const { id: way, address } of good) {
        const why = given.faults.get(address);
        if (why === undefined) facts.floating_ips.push(way);
        else faults[way] = why;
      }
      return { id, generation, state: 'active', reason: null, facts: { ...facts, faults } };
    });
  }

  remove(id: string): Promise<void> {
    return this.inTurn(id, async () => {
      if (checkedId(id) !== null) return;
      this.made.delete(id);
      await this.uplink.drop(id);
      await this.space(id).remove();
      await rm(this.dir(id), { recursive: true, force: true });
      // With the last one; others are a reason why it stays.
      await rmdir(join(this.root, this.tag)).catch(() => undefined);
    });
  }

  /** What is on this host, whoever made it: a namespace without its folder and a folder without its namespace too. */
  async list(): Promise<VpcObservation[]> {
    const prefix = this.namespaceOf('');
    const spaces = (await readdir('/run/netns').catch(() => []))
      .filter((name) => name.startsWith(prefix))
      .map((name) => name.slice(prefix.length));
    const folders = await readdir(join(this.root, this.tag)).catch(() => []);
    const ids = [...new Set([...spaces, ...folders])].filter((id) => checkedId(id) === null);
    return Promise.all(
      ids.map(async (id) => {
        const kept = await this.kept(id);
        const whole = kept !== null && (await this.space(id).exists());
        return {
          id,
          generation: kept?.generation ?? 0,
          state: whole ? ('active' as const) : ('error' as const),
          reason: whole ? null : 'it was left half made',
          facts: { driver: this.name, real: true },
        };
      }),
    );
  }

  onHost(): Promise<RegionThing[]> {
    const dir = join(this.root, this.tag);
    return networkThings({ prefix: this.namespaceOf(''), dir, uplink: this.uplink.space });
  }

  async tap(vpcId: string, portId: string, signal: AbortSignal): Promise<PortTap> {
    await this.whenMade(vpcId, signal);
    return this.inTurn(vpcId, async () => {
      const device = doorOf(portId);
      await openDoor(this.space(vpcId), device, 'tap');
      return { namespace: this.namespaceOf(vpcId), device };
    });
  }

  /**
   * A port's door for what has a network namespace of its own instead of a tap: a link from there to the bridge.
   * @param peer where the other end goes, with the port's MAC
   */
  async plug(
    vpcId: string,
    portId: string,
    peer: { namespace: string; device: string; mac: string },
    signal: AbortSignal,
  ): Promise<void> {
    await this.whenMade(vpcId, signal);
    await this.inTurn(vpcId, () => openDoor(this.space(vpcId), doorOf(portId), peer));
  }

  drop(vpcId: string, portId: string): Promise<void> {
    return this.inTurn(vpcId, async () => {
      const space = this.space(vpcId);
      if (checkedId(vpcId) !== null || !(await space.exists())) return;
      await removeDoors(space, [doorOf(portId)], [], true);
    });
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  /** Takes every network of this agent away, with the processes in them, and the uplink. */
  async clear(): Promise<void> {
    await this.uplink.clear();
    await Promise.all((await this.list()).map(({ id }) => this.remove(id)));
    await rm(join(this.root, this.tag), { recursive: true, force: true });
  }

  /** A network inside works without the uplink: what fails there is a fault of the addresses, and tried again. */
  private async give(id: string, ways: readonly PublicAddress[]) {
    try {
      return await this.uplink.give(
        id,
        this.space(id),
        ways.map(({ address }) => address),
      );
    } catch (error) {
      this.log.error({ vpc: id, error: String(error) }, 'the uplink of a VPC was not made');
      const why = 'the way out of this region does not work at the moment';
      return { held: this.uplink.heldBy(id), faults: new Map(ways.map(({ address }) => [address, why])) };
    }
  }

  /** Rules, and the end of what goes over addresses that they do not have any more, also when the agent dies in between. */
  private async rule(id: string, spec: VpcSpec, ways: readonly PublicAddress[], kept: Kept): Promise<string> {
    const space = this.space(id);
    const { family, name } = routerTable;
    const present = await listRules(space);
    const wanted = new Set(ways.map(pairOf));
    const before = ['fip_pairs', 'nat_public'].flatMap((set) => held(present, family, name, set));
    const leaving = new Set(kept.leaving);
    for (const pair of before) if (!wanted.has(pair)) leaving.add(pair.split(' ')[0]!);
    if (leaving.size > 0) await this.keep(id, { ...kept, leaving: [...leaving] });
    const seal = await makeTables(space, vpcTables(spec, ways), kept.seal, present);
    for (const address of leaving) await space.forget(address, ['orig-dst', 'reply-dst']);
    return seal;
  }

  private joinable(id: string): void {
    this.made.add(id);
    for (const go of this.waiting.get(id) ?? []) go();
    this.waiting.delete(id);
  }

  private async whenMade(id: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (checkedId(id) !== null) throw new Error('the id of a VPC is none');
    if (this.made.has(id)) return;
    let go = () => {};
    const come = new Promise<void>((resolve) => (go = resolve));
    const all = this.waiting.get(id) ?? new Set();
    this.waiting.set(id, all.add(go));
    signal.addEventListener('abort', go, { once: true });
    try {
      await settledWithin(come, this.options.waitMs ?? 30_000);
    } finally {
      signal.removeEventListener('abort', go);
      all.delete(go);
      if (all.size === 0 && this.waiting.get(id) === all) this.waiting.delete(id);
    }
    signal.throwIfAborted();
    if (!this.made.has(id)) throw new NetworkMissing(`the network ${id} has not come`);
  }

  private space(id: string): NetworkSpace {
    return new NetworkSpace(this.namespaceOf(id));
  }

  private dir(id: string): string {
    return join(this.root, this.tag, id);
  }

  private keep(id: string, kept: Kept): Promise<void> {
    return keepFile(join(this.dir(id), 'state.json'), JSON.stringify(kept));
  }

  private async kept(id: string): Promise<Kept | null> {
    try {
      const kept = JSON.parse(await readFile(join(this.dir(id), 'state.json'), 'utf8')) as Partial<Kept>;
      return { generation: 0, seal: null, doors: [], leaving: [], ...kept };
    } catch {
      // None, or half a file: made anew.
      return null;
    }
  }

  private inTurn<T>(id: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(id) ?? Promise.resolve()).then(work);
    const settled = turn.catch(() => undefined);
    this.turns.set(id, settled);
    void settled.then(() => {
      if (this.turns.get(id) === settled) this.turns.delete(id);
    });
    return turn;
  }
}

/** As the rules have it: `public . inner`, or the address of a gateway alone. */
const pairOf = ({ address, port }: PublicAddress): string =>
  port === null ? address : `${address} . ${port}`;

/** Ids become names on this host: anything but an id is refused. */
const checkedId = (id: string): string | null =>
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id) ? null : 'the id is none';
