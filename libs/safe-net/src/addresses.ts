import { isIP } from 'node:net';

/**
 * Which addresses are not public. Everything is compared as a 128-bit number, IPv4 as its mapped form: comparing strings is
 * how most advisories of this class began. Sources: IANA special-purpose registries, shared/facts/reliability.md section 6.
 */
interface Range {
  rule: string;
  from: bigint;
  to: bigint;
}

const mapped = 0xffffn << 32n;

/** An address as a number of 128 bits (IPv4 in its mapped form), or null when it is no address. */
export function toBits(address: string): bigint | null {
  // A zone (fe80::1%eth0) chooses an interface of this machine; nothing public has one.
  if (isIP(address) === 0 || address.includes('%')) return null;
  return address.includes(':') ? bits6(address) : mapped | bits4(address);
}

const bits4 = (address: string) => address.split('.').reduce((sum, part) => (sum << 8n) | BigInt(part), 0n);

/** `address` has passed isIP, so only its form is left to read. (ipaddr.js reads `::8.8.8.8` as the mapped form.) */
function bits6(address: string): bigint {
  const dotted = /[^:]+\.[^:]+$/.exec(address)?.[0];
  const tail = dotted === undefined ? 0n : bits4(dotted);
  const groups =
    dotted === undefined
      ? address
      : `${address.slice(0, -dotted.length)}${(tail >> 16n).toString(16)}:${(tail & 0xffffn).toString(16)}`;
  const [left, right] = groups.split('::') as [string, string | undefined];
  const words = (text: string) => (text === '' ? [] : text.split(':'));
  const [before, after] = [words(left), words(right ?? '')];
  const filled =
    right === undefined
      ? before
      : [...before, ...Array<string>(8 - before.length - after.length).fill('0'), ...after];
  return filled.reduce((sum, word) => (sum << 16n) | BigInt(`0x${word}`), 0n);
}

function range(rule: string, cidr: string): Range {
  const [address, length] = cidr.split('/') as [string, string];
  const size = BigInt(isIP(address) === 4 ? 32 : 128) - BigInt(length);
  const from = (toBits(address)! >> size) << size;
  return { rule, from, to: from + (1n << size) - 1n };
}

const ranges4: readonly Range[] = [
  range('this_network', '0.0.0.0/8'),
  range('private', '10.0.0.0/8'),
  range('shared', '100.64.0.0/10'),
  range('loopback', '127.0.0.0/8'),
  range('link_local', '169.254.0.0/16'),
  range('private', '172.16.0.0/12'),
  range('protocol_assignments', '192.0.0.0/24'),
  range('documentation', '192.0.2.0/24'),
  range('6to4_relay', '192.88.99.0/24'),
  range('private', '192.168.0.0/16'),
  range('benchmarking', '198.18.0.0/15'),
  range('documentation', '198.51.100.0/24'),
  range('documentation', '203.0.113.0/24'),
  range('multicast', '224.0.0.0/4'),
  range('reserved', '240.0.0.0/4'),
];

/** Ranges that carry an IPv4 address inside come first: whoever routes them decides where the packet ends. */
const ranges6: readonly Range[] = [
  range('unspecified', '::/128'),
  range('loopback', '::1/128'),
  range('ipv4_compatible', '::/96'),
  range('nat64', '64:ff9b::/96'),
  range('nat64', '64:ff9b:1::/48'),
  range('6to4', '2002::/16'),
  range('teredo', '2001::/32'),
  range('protocol_assignments', '2001::/23'),
  range('documentation', '2001:db8::/32'),
  range('documentation', '3fff::/20'),
  range('discard', '100::/64'),
  range('unique_local', 'fc00::/7'),
  range('link_local', 'fe80::/10'),
  range('site_local', 'fec0::/10'),
  range('multicast', 'ff00::/8'),
];

const global6 = range('global', '2000::/3');
const v4 = { from: mapped, to: mapped | 0xffff_ffffn };

const inside = (bits: bigint, { from, to }: { from: bigint; to: bigint }) => bits >= from && bits <= to;

/**
 * Is this address public?
 * @param address IPv4 dotted or IPv6 text, without brackets
 * @returns null when it is; else the rule that refuses it, e.g. `address:loopback`
 */
export function checkAddress(address: string): string | null {
  const bits = toBits(address);
  if (bits === null) return 'address:invalid';
  // Mapped IPv6 (::ffff:a.b.c.d) is the same number as the IPv4 address, so it meets the same ranges …
  if (inside(bits, v4)) {
    const refused = ranges4.find((candidate) => inside(bits, candidate));
    if (refused !== undefined) return `address:${refused.rule}`;
    // … and its form is refused on top: no public name needs it.
    return address.includes(':') ? 'address:ipv4_mapped' : null;
  }
  const refused = ranges6.find((candidate) => inside(bits, candidate));
  if (refused !== undefined) return `address:${refused.rule}`;
  return inside(bits, global6) ? null : 'address:not_global';
}

/** Are the two texts the same address? */
export function sameAddress(one: string, other: string): boolean {
  const bits = toBits(one);
  return bits !== null && bits === toBits(other);
}
