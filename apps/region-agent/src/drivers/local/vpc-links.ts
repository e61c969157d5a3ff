import { type PortSpec, type VpcSpec } from '@nebo/contracts';
import { type PlugPlace } from '../types.js';
import { type Device, NetworkSpace } from './netns.js';
import { doorOf } from './vpc-rules.js';

/** Makes or mends the bridge of a VPC with the router's address, and has the namespace pass packets on. */
export async function makeBridge(space: NetworkSpace, { subnet, gateway }: VpcSpec): Promise<void> {
  const own = `${gateway}/${subnet.split('/')[1]!}`;
  const bridge = (await space.show<Device>('address', 'show')).find(({ ifname }) => ifname === 'br0');
  const addresses = (bridge?.addr_info ?? []).map(({ local, prefixlen }) => `${local}/${prefixlen}`);
  if (!bridge) {
    // Packets of the bridge go through the rules of the bridge alone, those of the router through the router's.
    await space.trySet(
      '0',
      ['iptables', 'ip6tables', 'arptables'].map((table) => `bridge/bridge-nf-call-${table}`),
    );
    await space.trySet(
      '1',
      ['all', 'default'].map((device) => `ipv6/conf/${device}/disable_ipv6`),
    );
    await space.set('1', ['ipv4/ip_forward']);
    await space.ip(['link set lo up', 'link add br0 type bridge']);
  }
  await space.ip([
    ...addresses.filter((address) => address !== own).map((address) => `addr del ${address} dev br0`),
    ...(addresses.includes(own) ? [] : [`addr add ${own} dev br0`]),
    ...(bridge?.flags.includes('UP') ? [] : ['link set br0 up']),
  ]);
}

/**
 * Makes a port's device, when there is none, and puts it on the bridge.
 * @param kind a tap, or a link whose other end goes elsewhere
 */
export async function openDoor(
  space: NetworkSpace,
  device: string,
  kind: 'tap' | { namespace: string; device: string; mac: string },
): Promise<void> {
  const present = (await space.show<Device>('link', 'show')).find(({ ifname }) => ifname === device);
  const wanted = kind === 'tap' ? 'tun' : 'veth';
  if (present && present.linkinfo?.info_kind !== wanted) await space.ip([`link del ${device}`]);
  if (present?.linkinfo?.info_kind !== wanted)
    await space.ip([
      kind === 'tap'
        ? `tuntap add dev ${device} mode tap`
        : `link add ${device} type veth peer name ${kind.device} address ${kind.mac} netns ${kind.namespace}`,
    ]);
  await putOnBridge(space, device);
}

/** A device of a port goes where its VPC is. */
export const putOnBridge = (space: NetworkSpace, device: string): Promise<void> =>
  space.ip([`link set ${device} master br0 up`]);

/**
 * Makes a port's device anew as a link into a namespace, with the port's address there. What an earlier one left goes first:
 * the kernel may still have it for a moment after its namespace.
 */
export async function linkDoor(space: NetworkSpace, port: PortSpec, place: PlugPlace): Promise<void> {
  const door = doorOf(port.port_id);
  const lines = [
    `link add ${door} type veth peer name ${place.device} address ${port.mac} netns ${place.namespace}`,
    `link set ${door} master br0 up`,
  ];
  await space.ip(lines).catch(async () => {
    await space.ip([`link del ${door}`]).catch(() => undefined);
    await space.ip(lines);
  });
  await new NetworkSpace(place.namespace).ip([
    `link set ${place.device} addrgenmode none`,
    `addr add ${port.address}/${port.prefix} dev ${place.device}`,
    `link set ${place.device} up`,
  ]);
}

/**
 * Takes devices away whose port is gone. A tap that a machine still has open is left to the machine's end: it would spin on
 * a device that is gone, and nothing gets through any more.
 * @param devices only these, since others may be there before their ports have come
 * @returns those that were left
 */
export async function removeDoors(
  space: NetworkSpace,
  devices: readonly string[],
  ports: VpcSpec['ports'],
  evenOpen = false,
): Promise<string[]> {
  const wanted = new Set(ports.map(({ id }) => doorOf(id)));
  const gone = devices.filter((device) => !wanted.has(device));
  if (gone.length === 0) return [];
  const present = (await space.show<Device>('link', 'show')).filter(({ ifname }) => gone.includes(ifname));
  const left = evenOpen ? [] : present.filter(isOpen);
  await space.ip(
    present.filter((device) => !left.includes(device)).map(({ ifname }) => `link del ${ifname}`),
  );
  return left.map(({ ifname }) => ifname);
}

const isOpen = ({ linkinfo, flags }: Device): boolean =>
  linkinfo?.info_kind === 'tun' && flags.includes('UP') && !flags.includes('NO-CARRIER');
