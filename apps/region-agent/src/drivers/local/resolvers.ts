import { readFileSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import { contains } from '../address-book.js';
import { alwaysDenied } from './uplink-mode.js';

/** A lease with more names no more servers: resolvers ask three at most (resolv.conf(5), MAXNS). */
const most = 3;
/** The second one has what a local stub, which machines could not reach, asks itself. */
const files = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];

/**
 * The DNS resolvers that machines learn by DHCP: what `NEBO_VPC_RESOLVERS` says (IPv4 addresses by comma, or `off`), otherwise
 * those of this host that machines can reach, which only public ones are.
 * @throws Error when the setting is not of its form
 */
export function vpcResolvers(env: Record<string, string | undefined>, read = readText): string[] {
  const text = env['NEBO_VPC_RESOLVERS']?.trim() ?? '';
  if (text === 'off') return [];
  if (text === '') return [...new Set(files.flatMap((file) => publicResolvers(read(file))))].slice(0, most);
  const given = text.split(',').map((part) => part.trim());
  const bad = given.find((part) => !isIPv4(part) || isDenied(part));
  if (bad !== undefined)
    throw new Error(
      `NEBO_VPC_RESOLVERS: "${bad.slice(0, 40)}" is not an IPv4 address that machines can reach (public; or "off")`,
    );
  if (given.length > most) throw new Error(`NEBO_VPC_RESOLVERS: at most ${most} addresses`);
  return given;
}

const publicResolvers = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? '')
    .filter((address) => isIPv4(address) && !isDenied(address));

const isDenied = (address: string): boolean => alwaysDenied.some((range) => contains(range, address));

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
