import { createHash } from 'node:crypto';
import { type VpcSpec } from '@nebo/contracts';
import { type PublicAddress } from '../floating.js';
import { type Table } from './nft.js';

/** The device of a port in its VPC's namespace: a name has at most 15 characters. */
export const doorOf = (portId: string): string => `p${short(portId)}`;

/** The uplink's end of a VPC's link. */
export const linkOf = (vpcId: string): string => `v${short(vpcId)}`;

const short = (id: string) => createHash('sha256').update(id).digest('hex').slice(0, 12);

/**
 * What hosts may say on the bridge: IPv4 and ARP with MAC and address of their port, and the question for an address by
 * DHCP. So nobody takes a neighbour's or the router's place, answers DHCP, or announces an IPv6 router. A device that no
 * port stands for neither says nor hears anything.
 */
const doors = `
  set hosts {
    type ifname . ether_addr . ipv4_addr
  }
  set macs {
    type ifname . ether_addr
  }
  set known {
    type ifname
  }
  chain prerouting {
    type filter hook prerouting priority -300; policy drop;
    iifname . ether saddr != @macs drop
    ether type arp iifname . arp saddr ether . arp saddr ip @hosts accept
    ether type arp arp saddr ip 0.0.0.0 iifname . arp saddr ether @macs accept
    ether type ip ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept
    ether type ip udp sport 67 drop
    ether type ip udp dport 68 drop
    ether type ip iifname . ether saddr . ip saddr @hosts accept
  }
  chain onward {
    type filter hook forward priority 0; policy drop;
    oifname @known accept
  }
  chain output {
    type filter hook output priority 0; policy drop;
    oifname @known accept
  }
`;

/**
 * What the router of a VPC lets through. Of the namespace itself hosts reach DHCP and an echo. To the outside (up0) leads
 * nothing but a floating IP of the sender's, or the gateway's, and to the inside nothing but a floating IP. A connection
 * that is there is held to the same addresses as a new one, so it ends in the moment in which its address is taken away.
 * A host that goes to a floating IP of its own VPC is turned round here, with a source that the answer comes back to.
 */
const router = `
  map fip_in {
    type ipv4_addr : ipv4_addr
  }
  map fip_out {
    type ipv4_addr : ipv4_addr
  }
  map nat_out {
    type ipv4_addr : ipv4_addr
    flags interval
  }
  set fip_pairs {
    type ipv4_addr . ipv4_addr
  }
  set fip_hosts {
    type ipv4_addr
  }
  set nat_public {
    type ipv4_addr
  }
  set nat_hosts {
    type ipv4_addr
    flags interval
  }
  chain prerouting {
    type nat hook prerouting priority -100; policy accept;
    iifname { "up0", "br0" } dnat ip to ip daddr map @fip_in
  }
  chain postrouting {
    type nat hook postrouting priority 100; policy accept;
    oifname "up0" snat ip to ip saddr map @fip_out
    oifname "up0" snat ip to ip saddr map @nat_out
    iifname "br0" oifname "br0" ct status dnat snat ip to ip saddr map @fip_out
    iifname "br0" oifname "br0" ct status dnat snat ip to ip saddr map @nat_out
    iifname "br0" oifname "br0" ct status dnat masquerade
  }
  chain input {
    type filter hook input priority 0; policy drop;
    iifname "lo" accept
    iifname "br0" udp dport 67 accept
    iifname "br0" icmp type echo-request accept
    iifname "br0" ct state established,related accept
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct original ip daddr . ct reply ip saddr @fip_pairs accept
    iifname "br0" oifname "br0" ct status ! dnat accept
    ct state established,related ct reply ip daddr . ct original ip saddr @fip_pairs accept
    ct state established,related ct reply ip daddr @nat_public accept
    iifname "br0" oifname "up0" ct state new ip saddr @fip_hosts accept
    iifname "br0" oifname "up0" ct state new ip saddr @nat_hosts accept
  }
  chain output {
    type filter hook output priority 0; policy drop;
    oifname { "lo", "br0" } accept
  }
`;

/** Tables of a VPC's namespace, with what its spec and its public addresses put into them. */
export function vpcTables({ ports, subnet }: VpcSpec, ways: readonly PublicAddress[]): Table[] {
  const floating = ways.flatMap(({ address, port }) => (port === null ? [] : [{ address, port }]));
  const nat = ways.filter(({ port }) => port === null);
  const set = (items: readonly string[]) => ({ kind: 'set' as const, items });
  const map = (items: readonly string[]) => ({ kind: 'map' as const, items });
  return [
    {
      family: 'bridge',
      name: 'nebo',
      body: doors,
      elements: {
        hosts: set(ports.map(({ id, mac, address }) => `${doorOf(id)} . ${mac} . ${address}`)),
        macs: set(ports.map(({ id, mac }) => `${doorOf(id)} . ${mac}`)),
        known: set(ports.map(({ id }) => doorOf(id))),
      },
    },
    {
      ...routerTable,
      body: router,
      elements: {
        fip_in: map(floating.map(({ address, port }) => `${address} : ${port}`)),
        fip_out: map(floating.map(({ address, port }) => `${port} : ${address}`)),
        nat_out: map(nat.map(({ address }) => `${subnet} : ${address}`)),
        fip_pairs: set(floating.map(({ address, port }) => `${address} . ${port}`)),
        fip_hosts: set(floating.map(({ port }) => port)),
        nat_public: set(nat.map(({ address }) => address)),
        nat_hosts: set(nat.length > 0 ? [subnet] : []),
      },
    },
  ];
}

/** Where a VPC's public addresses are: `fip_pairs` and `nat_public` say which worked until now. */
export const routerTable = { family: 'inet', name: 'nebo' } as const;
