import { isIPv4 } from 'node:net';
import { contains } from '../address-book.js';

/**
 * How far floating IPs and gateways reach. In every mode they reach each other.
 * - `isolated`: nothing else.
 * - `host`: this host reaches floating IPs; they reach nothing of it and nothing behind it.
 * - `masquerade`: also out to the internet, under the host's own address; nobody comes in from there.
 * - an interface of the host: in and out through it, with their own addresses, which the network behind it must route to
 *   this host.
 */
export type UplinkMode = 'host' | 'isolated' | 'masquerade' | { through: string };

/** What `NEBO_UPLINK` and `NEBO_UPLINK_DENY` say. */
export interface UplinkSettings {
  mode: UplinkMode;
  /** Ranges in CIDR form that machines do not reach through the uplink. */
  denied: string[];
}

/**
 * What no machine reaches through the uplink, whatever stands behind it: private, shared and link-local ranges (metadata
 * services are among the last), loopback, multicast, and what is reserved. A floating IP of this region is always reached.
 */
export const alwaysDenied = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/3',
];

/** @throws Error when a setting is not of its form */
export function uplinkSettings(env: Record<string, string | undefined>): UplinkSettings {
  const word = env['NEBO_UPLINK']?.trim() || 'host';
  const more = (env['NEBO_UPLINK_DENY'] ?? '').split(',').map((part) => part.trim());
  const own = more.filter((part) => part !== '').map((part) => (part.includes('/') ? part : `${part}/32`));
  const bad = own.find((part) => !isRange(part));
  if (bad !== undefined) throw new Error(`NEBO_UPLINK_DENY: "${bad}" is not an IPv4 address or range`);
  if (word === 'host' || word === 'isolated' || word === 'masquerade')
    return { mode: word, denied: [...alwaysDenied, ...own] };
  if (!/^[A-Za-z0-9._-]{1,15}$/.test(word))
    throw new Error(
      `NEBO_UPLINK is host, isolated, masquerade or the name of an interface, not "${word.slice(0, 40)}"`,
    );
  return { mode: { through: word }, denied: [...alwaysDenied, ...own] };
}

function isRange(text: string): boolean {
  const [address = '', bits = '', ...rest] = text.split('/');
  return isIPv4(address) && /^\d{1,2}$/.test(bits) && Number(bits) <= 32 && rest.length === 0;
}

/** The same addresses without a range that lies in another: an interval set takes no overlaps. */
export function withoutOverlaps(ranges: readonly string[]): string[] {
  const parsed = [...new Set(ranges.map(canonical))].map((range) => ({
    range,
    network: range.split('/')[0]!,
    bits: Number(range.split('/')[1]),
  }));
  return parsed
    .filter(
      ({ range, network, bits }) =>
        !parsed.some(
          (other) => other.range !== range && other.bits <= bits && contains(other.range, network),
        ),
    )
    .map(({ range, network, bits }) => (bits === 32 ? network : range));
}

/** `10.1.2.3/8` is 10.0.0.0/8. */
function canonical(range: string): string {
  const [address, bits] = range.split('/') as [string, string];
  const mask = Number(bits) === 0 ? 0 : (0xffffffff << (32 - Number(bits))) >>> 0;
  const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  const network = (value & mask) >>> 0;
  return `${[24, 16, 8, 0].map((shift) => (network >>> shift) & 255).join('.')}/${bits}`;
}
