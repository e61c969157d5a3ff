import { networkInterfaces } from 'node:os';
import { type PortSpec } from '@nebo/contracts';
import { type EgressDoor } from '@nebo/safe-net';
import { signal } from '../../system/processes.js';
import { rangeOf } from '../address-book.js';
import { type Egress, type PortPlugs } from '../types.js';
import { tool } from './exec.js';
import { type Slot, type Slots } from './slots.js';

/** A run's interface in a VPC. */
const vpcDevice = 'eth1';

const never = (): AbortSignal => new AbortController().signal;

/** The network of one run: a namespace with one link to the host, and rules that it cannot change. */
export interface RunNetwork {
  /** Name for `ip netns exec`. */
  namespace: string;
  slot: Slot;
  /** The guarded proxy as the run reaches it, null when there is no way out. */
  proxyUrl: string | null;
  close(): Promise<void>;
}

/**
 * Rules inside the run's namespace. The run has no capability there, so it cannot change them: the host may connect to
 * it, it may answer, and it may begin nothing itself except to the proxy. So neither services of the host nor private
 * addresses nor IPv6 neighbours can be reached, whatever the host's own firewall says. With a port in a VPC it may begin with
 * whoever has an address of the subnet, and they with it; between the two sides nothing passes.
 */
function rules(slot: Slot, proxyPort: number | null, port: PortSpec | null): string {
  const proxy =
    proxyPort === null
      ? ''
      : `oifname "eth0" ip saddr ${slot.address} ip daddr ${slot.hostAddress} tcp dport ${proxyPort} accept`;
  const { address = '', prefix = 0 } = port ?? {};
  const inward = `iifname "${vpcDevice}" ip saddr ${rangeOf(address, prefix)} ip daddr ${address}`;
  const come = port
    ? `${inward} meta l4proto { tcp, udp } accept\n    ${inward} icmp type echo-request accept`
    : '';
  const go = port
    ? `oifname "${vpcDevice}" ip saddr ${address} ip daddr ${rangeOf(address, prefix)} accept`
    : '';
  return `table inet nebo {
  chain input {
    type filter hook input priority 0; policy drop;
    iifname "lo" accept
    ct state established,related accept
    iifname "eth0" ip saddr ${slot.hostAddress} accept
    ${come}
  }
  chain forward { type filter hook forward priority 0; policy drop; }
  chain output {
    type filter hook output priority 0; policy drop;
    oifname "lo" accept
    ct state established,related accept
    ${proxy}
    ${go}
    meta l4proto tcp reject with tcp reset
    reject
  }
}
`;
}

/** Networks of one agent; names on the host carry its tag, so that leftovers are found. */
export class Networks {
  constructor(
    private readonly tag: string,
    private readonly slots: Slots,
    private readonly egress: Egress | null,
    private readonly plugs: PortPlugs | null,
  ) {}

  /** Whether runs can be in VPCs too. */
  get areReal(): boolean {
    return this.plugs !== null;
  }

  /**
   * @param port of a VPC that it is in too; null: of none
   * @param signal ends the wait for a VPC that has not come
   * @throws LaunchRefused when it does not come; whatever the host's tools throw. Nothing is left then
   */
  async open(run: string, port: PortSpec | null = null, signal: AbortSignal = never()): Promise<RunNetwork> {
    const inUse = new Set(
      Object.values(networkInterfaces()).flatMap((all) => all?.map((one) => one.address) ?? []),
    );
    const slot = this.slots.acquire((address) => inUse.has(address));
    const namespace = `nebo-${this.tag}-${run}`;
    // Interface names have at most 15 characters.
    const link = `nb${run.slice(0, 10)}`;
    let door: EgressDoor | null = null;
    const joins = port !== null && this.plugs !== null;
    const close = async () => {
      await door?.close();
      // The link goes with its namespace in any case.
      if (joins) await this.plugs!.leave(port).catch(() => undefined);
      await this.remove(namespace);
      this.slots.release(slot);
    };
    try {
      await tool(
        ['ip', '-batch', '-'],
        `netns add ${namespace}\n` +
          `link add ${link} type veth peer name eth0 netns ${namespace}\n` +
          `addr add ${slot.hostAddress}/30 dev ${link}\n` +
          `link set ${link} up\n`,
      );
      await tool(
        ['ip', '-n', namespace, '-batch', '-'],
        `link set lo up\naddr add ${slot.address}/30 dev eth0\nlink set eth0 up\n`,
      );
      // The run sees nothing of the host's loopback, so the proxy comes to its link.
      door = (await this.egress?.door(slot.hostAddress)) ?? null;
      const proxyPort = door && Number(new URL(door.url).port);
      // Beside each other: nothing runs inside before both are done.
      const both = await Promise.allSettled([
        tool(['ip', 'netns', 'exec', namespace, 'nft', '-f', '-'], rules(slot, proxyPort, port)),
        joins ? this.plugs!.join(port, { namespace, device: vpcDevice }, signal) : undefined,
      ]);
      for (const one of both) if (one.status === 'rejected') throw one.reason;
      return { namespace, slot, proxyUrl: door?.url ?? null, close };
    } catch (error) {
      await close();
      throw error;
    }
  }

  /** Removes every namespace of this agent with what runs in it. */
  async cleanUp(): Promise<void> {
    const list = await tool(['ip', 'netns', 'list']).catch(() => '');
    for (const line of list.split('\n')) {
      const name = line.split(' ')[0]!;
      if (name.startsWith(`nebo-${this.tag}-`)) await this.remove(name);
    }
    this.slots.releaseAll();
  }

  private async remove(namespace: string): Promise<void> {
    // A process that is left would keep the old namespace alive and answer in place of the next (region.md section 8).
    const pids = await tool(['ip', 'netns', 'pids', namespace]).catch(() => '');
    for (const pid of pids.split('\n')) if (/^[1-9]\d*$/.test(pid)) signal(Number(pid), 'SIGKILL');
    await tool(['ip', 'netns', 'del', namespace]).catch(() => undefined);
  }
}
