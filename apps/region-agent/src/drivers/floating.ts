import { isIPv4 } from 'node:net';
import { type VpcSpec } from '@nebo/contracts';
import { contains } from './address-book.js';

/** A way of a VPC to the outside: of one port, or for all that have none of their own (`port` null). */
export interface PublicAddress {
  id: string;
  address: string;
  /** The port's address inside. */
  port: string | null;
}

/**
 * What can be made of a VPC's floating IPs and gateway, and why the rest cannot, by their id. As with ports, nothing is taken
 * on trust: addresses go into rules and routes of this host.
 */
export function publicAddresses({ subnet, ports, floating_ips, nat }: VpcSpec): {
  good: PublicAddress[];
  faults: Record<string, string>;
} {
  const good: PublicAddress[] = [];
  const faults: Record<string, string> = {};
  const inside = new Map(ports.map(({ id, address }) => [id, address]));
  const taken = { addresses: new Set<string>(), ports: new Set<string>() };
  const add = (id: string, address: string, port: string | null) => {
    if (!isIPv4(address) || /^(0|127|22[4-9]|2[3-5]\d)\./.test(address))
      faults[id] = 'it is not an address that can be used';
    else if (contains(subnet, address)) faults[id] = 'it lies in the range of its own network';
    else if (taken.addresses.has(address)) faults[id] = 'its address is used twice in this network';
    else {
      taken.addresses.add(address);
      good.push({ id, address, port });
    }
  };
  for (const { id, address, port_id } of floating_ips) {
    const port = inside.get(port_id);
    if (port === undefined) faults[id] = 'the interface that it belongs to is not in this network';
    else if (taken.ports.has(port)) faults[id] = 'its interface has another floating IP';
    else {
      add(id, address, port);
      if (faults[id] === undefined) taken.ports.add(port);
    }
  }
  if (nat) add(nat.id, nat.address, null);
  return { good, faults };
}
