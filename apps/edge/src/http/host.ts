/**
 * Host names as the edge compares them: lower case, without port and trailing dot. IP literals are legal Host values but
 * never match a route. Source: reliability.md section 8.
 */

export interface HostAndPort {
  /** Lower case, no trailing dot; an IPv6 literal keeps its brackets. */
  host: string;
  /** null when the value names no port. */
  port: number | null;
}

const NAME =
  /^(?=.{1,253}\.?$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?$/;
const IPV6 = /^\[[0-9a-f:.]{2,45}\]$/;

/**
 * Reads the value of a Host header or of an authority.
 * @returns null for anything that is not a plain `name[:port]`: empty, with userinfo, spaces, a bad port, …
 */
export function parseHost(value: string): HostAndPort | null {
  const lower = value.toLowerCase();
  const match = /^(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?$/.exec(lower);
  if (!match) return null;
  const name = match[1]!;
  if (!NAME.test(name) && !IPV6.test(name)) return null;
  const port = match[2] === undefined ? null : Number(match[2]);
  if (port !== null && (port < 1 || port > 65_535)) return null;
  return { host: name.endsWith('.') ? name.slice(0, -1) : name, port };
}

/** True for a name that a route may have: a DNS name, or `*.` and a DNS name. */
export function isRouteHost(host: string): boolean {
  const name = host.startsWith('*.') ? host.slice(2) : host;
  return NAME.test(name) && !name.endsWith('.') && name === name.toLowerCase();
}

/** `shop.example.org` → `*.example.org`; null for a name of one label. */
export function wildcardOf(host: string): string | null {
  const dot = host.indexOf('.');
  return dot > 0 && dot < host.length - 1 ? `*${host.slice(dot)}` : null;
}
