import { isIPv4 } from 'node:net';
import { type PortSpec } from '@nebo/contracts';

interface AddressBook {
  subnet: string;
  gateway: string;
  ports: readonly { mac: string; address: string }[];
}

/**
 * Why a VPC's subnet and ports cannot be made, or null. The control plane has checked them; but what stands here goes into
 * rules and configuration of this host, so nothing is taken on trust.
 */
export function addressBookFault({ subnet, gateway, ports }: AddressBook): string | null {
  const [network = '', bits = '', ...rest] = subnet.split('/');
  if (!isIPv4(network) || !/^\d{1,2}$/.test(bits) || Number(bits) > 30 || rest.length > 0)
    return 'the subnet is not an IPv4 range';
  const inside = (address: string) => isIPv4(address) && contains(subnet, address);
  if (!inside(gateway)) return 'the gateway is not an address of the subnet';
  const addresses = new Set([gateway]);
  const macs = new Set<string>();
  for (const { mac, address } of ports) {
    if (!/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/.test(mac)) return 'a port has a MAC that is none';
    if (!inside(address)) return `the address ${String(address).slice(0, 40)} is outside of the subnet`;
    if (addresses.has(address) || macs.has(mac))
      return `two ports have the address ${address} or the MAC ${mac}`;
    addresses.add(address);
    macs.add(mac);
  }
  return null;
}

/**
 * Why a port cannot be made an interface of a replica, or null. Its subnet must be one that a VPC may have: a range of the
 * host's links (100.64.0.0/10) would take the way to the proxy.
 */
export function portFault(port: PortSpec): string | null {
  const { vpc_id, port_id, mac, address, prefix, gateway } = port;
  const isId = (id: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id);
  if (!isId(vpc_id) || !isId(port_id)) return 'the id of a VPC or port is none';
  if (!Number.isInteger(prefix) || prefix < 16 || prefix > 30) return 'the subnet is not one of a VPC';
  const subnet = `${address}/${prefix}`;
  const fault = addressBookFault({ subnet, gateway, ports: [{ mac, address }] });
  if (fault !== null) return fault;
  const isPrivate = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'].some((range) =>
    contains(range, address),
  );
  return isPrivate ? null : 'the subnet is not a private one';
}

/** The range that an address with a prefix lies in, in CIDR form. */
export function rangeOf(address: string, prefix: number): string {
  return `${textOf(networkOf(address, prefix))}/${prefix}`;
}

const networkOf = (address: string, prefix: number): number => {
  const number = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  return number - (number % 2 ** (32 - prefix));
};
const textOf = (number: number): string => [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.');

/** Addresses of a subnet that are named one by one: the lowest ones, which ports get first. */
const namedAddresses = 512;

/**
 * The subnet of a port as entries of `NO_PROXY`. There is no form that every client knows: Go, Python and curl read a range in
 * CIDR form, Node's `http` one from first to last, Node's `fetch` and many libraries single addresses alone.
 */
export function pastProxy({ address, prefix }: PortSpec): string[] {
  const network = networkOf(address, prefix);
  const last = network + 2 ** (32 - prefix) - 1;
  const hosts = Math.min(namedAddresses, last - network - 1);
  const named = Array.from({ length: hosts }, (_, index) => textOf(network + 1 + index));
  return [rangeOf(address, prefix), `${textOf(network + 1)}-${textOf(last - 1)}`, ...named];
}

/**
 * Said in the log of what is in a private network: whoever is to reach it there has to know.
 * @param joins whether it has an interface there
 */
export const networkWords = ({ address, prefix }: PortSpec, joins: boolean): string =>
  joins
    ? `nebo: its address in the private network ${rangeOf(address, prefix)} is ${address}`
    : 'nebo: private networks are simulated in this region: it has no interface in its own';

/** Whether an IPv4 address lies in a range in CIDR form; both have been checked. */
export function contains(range: string, address: string): boolean {
  const [network, bits] = range.split('/') as [string, string];
  return networkOf(address, Number(bits)) === networkOf(network, Number(bits));
}
