import { BlockList, isIPv4 } from 'node:net';
import { type VpcSpec } from '@nebo/contracts';

/**
 * Why a VPC's subnet and ports cannot be made, or null. The control plane has checked them; but what stands here goes into
 * rules and configuration of this host, so nothing is taken on trust.
 */
export function addressBookFault({ subnet, gateway, ports }: VpcSpec): string | null {
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

/** Whether an IPv4 address lies in a range in CIDR form. */
export function contains(range: string, address: string): boolean {
  const [network, bits] = range.split('/') as [string, string];
  const list = new BlockList();
  list.addSubnet(network, Number(bits));
  return list.check(address);
}
