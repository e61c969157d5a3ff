import { badRequest, fieldError } from '@nebo/service-kit';

/** An IPv4 range. Addresses are whole numbers of 32 bits. */
export interface Subnet {
  /** Canonical CIDR form. */
  cidr: string;
  network: number;
  /** Length of the prefix in bits. */
  prefix: number;
  /** First address: router and DHCP server. */
  gateway: number;
  broadcast: number;
}

const parse = (text: string): number | null => {
  const parts = text.split('.').map(Number);
  if (parts.length !== 4 || parts.some((part) => !Number.isInteger(part) || part < 0 || part > 255))
    return null;
  return parts.reduce((sum, part) => sum * 256 + part, 0);
};

/** An address as text. */
export const addressText = (address: number): string =>
  [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join('.');

/** A number for an address in text. @throws RangeError for anything else */
export function addressNumber(text: string): number {
  const address = parse(text);
  if (address === null) throw new RangeError(`"${text}" is not an IPv4 address`);
  return address;
}

/** A range in CIDR form, or null when it is none or has host bits. */
export function subnetOf(cidr: string): Subnet | null {
  const [, address = '', bits = ''] = /^([\d.]{7,15})\/(\d{1,2})$/.exec(cidr) ?? [];
  const network = parse(address);
  const prefix = Number(bits);
  if (network === null || bits === '' || prefix > 32) return null;
  const size = 2 ** (32 - prefix);
  if (network % size !== 0) return null;
  const broadcast = network + size - 1;
  return { cidr: `${addressText(network)}/${prefix}`, network, prefix, gateway: network + 1, broadcast };
}

/** Whether two ranges share an address. */
export const overlap = (a: Subnet, b: Subnet): boolean =>
  a.network <= b.broadcast && b.network <= a.broadcast;

const within = (inner: Subnet, outer: Subnet) =>
  inner.network >= outer.network && inner.broadcast <= outer.broadcast;
const known = (cidr: string): Subnet => subnetOf(cidr)!;
const privateRanges = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'].map(known);
/** Kept for the platform (interfaces.md, 10). */
const platform = known('10.0.0.0/12');

/** Sizes that a VPC may have, as prefix lengths. */
export const sizes = { largest: 16, smallest: 28 } as const;

/**
 * The range of a new VPC.
 * @throws ApiError 422 for what is no range, 400 `invalid_subnet` for one that no VPC may have
 */
export function requireSubnet(cidr: string): Subnet {
  const subnet = subnetOf(cidr);
  if (subnet === null)
    throw fieldError(
      'subnet',
      'must be an IPv4 range in CIDR form whose host bits are zero, like 10.20.0.0/16',
    );
  const refuse = (why: string) => badRequest('invalid_subnet', `subnet: ${why}`);
  if (subnet.prefix < sizes.largest || subnet.prefix > sizes.smallest)
    throw refuse(`must have a size from /${sizes.largest} to /${sizes.smallest}`);
  if (!privateRanges.some((range) => within(subnet, range)))
    throw refuse('must lie in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16');
  if (overlap(subnet, platform)) throw refuse('10.0.0.0/12 is kept for the platform');
  return subnet;
}

/** Ranges that a default VPC may take, in this order: /20 each, high in 10/8, where users rarely begin. */
export function* defaultSubnets(): Generator<Subnet> {
  for (let second = 128; second < 256; second += 1)
    for (let third = 0; third < 256; third += 16) yield known(`10.${second}.${third}.0/20`);
}
