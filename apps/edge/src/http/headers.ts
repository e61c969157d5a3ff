import { type IncomingMessage } from 'node:http';

/** Belong to one connection, never to the message (RFC 9110 section 7.6.1, RFC 9112); plus what would split framing. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'http2-settings',
]);

/** Names that a `Connection` header may not take away: removing them would change what the message means. */
const NOT_BY_CONNECTION = new Set(['host', 'content-length', 'content-type', 'authorization', 'cookie']);

/** What only the edge may say: inbound values are dropped whoever sent them. */
function isOurs(name: string): boolean {
  return (
    name === 'forwarded' ||
    name === 'x-real-ip' ||
    name === 'x-request-id' ||
    name.startsWith('x-forwarded-') ||
    name.startsWith('x-nebo-')
  );
}

function namedByConnection(raw: readonly string[]): Set<string> {
  const named = new Set<string>();
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]!.toLowerCase() !== 'connection') continue;
    for (const token of raw[i + 1]!.split(',')) {
      const name = token.trim().toLowerCase();
      if (!NOT_BY_CONNECTION.has(name)) named.add(name);
    }
  }
  return named;
}

export interface ForwardFacts {
  /** Host header of the client, kept as it is. */
  authority: string;
  secure: boolean;
  requestId: string;
}

/**
 * The headers of a request on its way to a replica, as a flat list name, value, …: order and doubles kept, hop-by-hop and
 * forged forwarding headers gone, ours added.
 */
export function requestHeaders(req: IncomingMessage, facts: ForwardFacts): string[] {
  const raw = req.rawHeaders;
  const dropped = namedByConnection(raw);
  const headers: string[] = ['Host', facts.authority];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    // Under CGI-like servers `X_Forwarded_For` and `X-Forwarded-For` become one variable, so both spellings are ours.
    const folded = name.replaceAll('_', '-');
    if (name === 'host' || HOP_BY_HOP.has(name) || dropped.has(name) || isOurs(folded)) continue;
    headers.push(raw[i]!, raw[i + 1]!);
  }
  headers.push(
    'X-Forwarded-For',
    clientAddress(req),
    'X-Forwarded-Proto',
    facts.secure ? 'https' : 'http',
    'X-Forwarded-Host',
    facts.authority,
    'X-Request-Id',
    facts.requestId,
  );
  return headers;
}

/** The headers of a replica's answer on their way to the client, as a flat list. */
export function responseHeaders(raw: readonly string[]): string[] {
  const dropped = namedByConnection(raw);
  const headers: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (HOP_BY_HOP.has(name) || dropped.has(name) || name.startsWith('x-nebo-')) continue;
    headers.push(raw[i]!, raw[i + 1]!);
  }
  return headers;
}

/** Address of the peer; an IPv4 address is shown as such on a dual-stack socket. */
export function clientAddress(req: IncomingMessage): string {
  const address = req.socket.remoteAddress ?? 'unknown';
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}

/** The client's request id when it is harmless to log, otherwise null. */
export function givenRequestId(req: IncomingMessage): string | null {
  const value = req.headers['x-request-id'];
  return typeof value === 'string' && /^[\w.-]{8,128}$/.test(value) ? value : null;
}
