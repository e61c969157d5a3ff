import { isIP } from 'node:net';
import { checkAddress, toBits } from './addresses.js';
import { SafeNetRefused } from './errors.js';

/** Hosts that the operator allows although they are not public, from `NEBO_SAFE_NET_ALLOW`. */
export class AllowList {
  private readonly entries: ReadonlySet<string>;
  private readonly listed: readonly (readonly [host: string, port: number])[];

  constructor(entries: Iterable<readonly [host: string, port: number]>) {
    this.listed = [...entries];
    this.entries = new Set(this.listed.map(([host, port]) => key(host, port)));
  }

  /** The entries as they were given, to make a longer list of them. */
  [Symbol.iterator](): Iterator<readonly [host: string, port: number]> {
    return this.listed[Symbol.iterator]();
  }

  /** Is this host (a name, or an address without brackets) allowed on this port? */
  has(host: string, port: number): boolean {
    return this.entries.has(key(host, port));
  }

  get size(): number {
    return this.entries.size;
  }
}

const key = (host: string, port: number) => `${toBits(host) ?? bareName(host)} ${port}`;

/** Lower case and without the root dot: `Example.COM.` and `example.com` are one name. */
export const bareName = (host: string) => host.toLowerCase().replace(/\.$/, '');

/**
 * Parses `NEBO_SAFE_NET_ALLOW`: `host:port` entries separated by commas; IPv6 in brackets. Empty or undefined: nothing.
 * @throws Error naming the entry that is wrong: a typo must not silently allow more or less
 */
export function parseAllowList(text: string | undefined): AllowList {
  const entries: [string, number][] = [];
  for (const entry of (text ?? '').split(',').map((part) => part.trim())) {
    if (entry === '') continue;
    const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+)):(\d{1,5})$/i.exec(entry);
    const port = Number(match?.[3]);
    const host = match?.[1] ?? match?.[2];
    if (host === undefined || port < 1 || port > 65_535 || (match?.[1] !== undefined && isIP(host) !== 6)) {
      throw new Error(`NEBO_SAFE_NET_ALLOW: ${JSON.stringify(entry)} is not host:port`);
    }
    entries.push([host, port]);
  }
  return new AllowList(entries);
}

/** What may be asked for. */
export interface UrlPolicy {
  allow?: AllowList;
  /** Ports beside those of the allow list; default 80 and 443. */
  ports?: readonly number[];
  /** Refuse http, except for hosts of the allow list. */
  httpsOnly?: boolean;
  /** Own service names and cluster suffixes that are refused beside the built-in ones, e.g. `nebo.example`. */
  refuseNames?: readonly string[];
}

/** Names that mean something only inside some network, whatever they resolve to. */
const insideSuffixes = [
  'localhost',
  'localdomain',
  'local',
  'internal',
  'intranet',
  'lan',
  'home',
  'corp',
  'private',
  'home.arpa',
  'svc',
  'cluster.local',
  'in-addr.arpa',
  'ip6.arpa',
  'onion',
  'test',
  'invalid',
];

/** A URL that passed: where to dial, and whether the operator named it. */
export interface CheckedUrl {
  url: URL;
  /** Name, or address without brackets. */
  host: string;
  port: number;
  /** host:port is on the allow list: its addresses are not checked. */
  allowed: boolean;
}

// What WHATWG parsing would drop or turn (tab, newline, backslash) is what parsers disagree about.
// eslint-disable-next-line no-control-regex
const odd = /[\u0000-\u0020\u007f\\]/;

/**
 * Checks everything about a URL that can be known without DNS, literals included: undici and node skip the lookup hook
 * for IP literals (measured), so a check there alone would miss `http://2130706433/`.
 * @param input text as the user gave it, or a URL that was already parsed
 * @throws SafeNetRefused
 */
export function checkUrl(input: string | URL, policy: UrlPolicy = {}): CheckedUrl {
  if (typeof input === 'string') {
    if (input.length > 8_192)
      throw new SafeNetRefused('url_length', 'the URL is longer than 8192 characters');
    if (odd.test(input))
      throw new SafeNetRefused('characters', 'the URL has spaces, control characters or backslashes');
  }
  let url: URL;
  try {
    url = new URL(input);
  } catch {
    throw new SafeNetRefused('invalid_url', 'this is not a valid absolute URL');
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new SafeNetRefused('scheme', 'only http and https URLs are allowed');
  }
  if (url.username !== '' || url.password !== '') {
    throw new SafeNetRefused('userinfo', 'the URL must not have a user name or password');
  }
  const port = url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port);
  const host = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname;
  const allowed = policy.allow?.has(host, port) ?? false;
  if (policy.httpsOnly && url.protocol !== 'https:' && !allowed) {
    throw new SafeNetRefused('scheme', 'only https URLs are allowed');
  }
  checkHost(host, port, allowed, policy);
  return { url, host, port, allowed };
}

/** The rules of host and port alone. @throws SafeNetRefused */
export function checkHost(host: string, port: number, allowed: boolean, policy: UrlPolicy): void {
  if (allowed) return;
  if (!(policy.ports ?? [80, 443]).includes(port)) {
    throw new SafeNetRefused('port', `port ${port} is not allowed`);
  }
  if (isIP(host) !== 0) {
    const rule = checkAddress(host);
    if (rule !== null) throw new SafeNetRefused(rule, `${host} is not a public address`);
    return;
  }
  const name = bareName(host);
  if (!/^[a-z0-9_-]+(\.[a-z0-9_-]+)+$/.test(name) || name.length > 253) {
    throw new SafeNetRefused('host_name', 'the host is not a full public name');
  }
  const refused = [...insideSuffixes, ...(policy.refuseNames ?? []).map(bareName)];
  if (refused.some((suffix) => name === suffix || name.endsWith(`.${suffix}`))) {
    throw new SafeNetRefused('host_name', `${name} is an internal name`);
  }
}
