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

/** Pseudo fields of HTTP/2 say what Host and the request line say. */
const PSEUDO = 58;
const X = 120;

/** What only the edge may say: inbound values are dropped whoever sent them. */
function isOurs(name: string): boolean {
  if (name.charCodeAt(0) !== X) return name === 'forwarded';
  // Under CGI-like servers `X_Forwarded_For` and `X-Forwarded-For` become one variable, so both spellings are ours.
  const folded = name.includes('_') ? name.replaceAll('_', '-') : name;
  return (
    folded === 'x-real-ip' ||
    folded === 'x-request-id' ||
    folded.startsWith('x-forwarded-') ||
    folded.startsWith('x-nebo-')
  );
}

/** Names that `Connection` fields take away; null in the usual case that there are none. */
function namedByConnection(raw: readonly string[]): Set<string> | null {
  let named: Set<string> | null = null;
  for (let i = 0; i < raw.length; i += 2) {
    const field = raw[i]!;
    if (field.length !== 10 || field.toLowerCase() !== 'connection') continue;
    const value = raw[i + 1]!;
    if (value === 'keep-alive' || value === 'close') continue;
    for (const token of value.split(',')) {
      const name = token.trim().toLowerCase();
      if (!NOT_BY_CONNECTION.has(name)) (named ??= new Set()).add(name);
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
 * forged forwarding headers gone, ours added. HTTP/2 may split a cookie into fields of one pair each; HTTP/1.1 has one field
 * (RFC 9113 section 8.2.3).
 */
export function requestHeaders(req: IncomingMessage, facts: ForwardFacts): string[] {
  const raw = req.rawHeaders;
  const dropped = namedByConnection(raw);
  const isSplit = req.httpVersionMajor > 1;
  const headers: string[] = ['Host', facts.authority];
  let cookie = -1;
  for (let i = 0; i < raw.length; i += 2) {
    const field = raw[i]!;
    const name = field.toLowerCase();
    if (name === 'host' || HOP_BY_HOP.has(name) || dropped?.has(name) || isOurs(name)) continue;
    if (isSplit) {
      if (name.charCodeAt(0) === PSEUDO) continue;
      if (name === 'cookie') {
        if (cookie >= 0) {
          headers[cookie] += `; ${raw[i + 1]!}`;
          continue;
        }
        cookie = headers.length + 1;
      }
    }
    headers.push(field, raw[i + 1]!);
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
    const field = raw[i]!;
    const name = field.toLowerCase();
    if (HOP_BY_HOP.has(name) || dropped?.has(name) || name.startsWith('x-nebo-')) continue;
    headers.push(field, raw[i + 1]!);
  }
  return headers;
}

/** Whether a flat list has a field. @param name in lower case */
export function hasField(flat: readonly string[], name: string): boolean {
  for (let i = 0; i < flat.length; i += 2) {
    const field = flat[i]!;
    if (field.length === name.length && field.toLowerCase() === name) return true;
  }
  return false;
}

/** Never in a trailer (RFC 9110 section 6.5.1): what frames, routes or rules a message. */
const NOT_IN_TRAILER = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'cache-control',
  'authorization',
  'set-cookie',
]);

/** The trailer fields of a replica's answer that go on to the client; null when there are none. */
export function responseTrailers(raw: readonly string[]): [name: string, value: string][] | null {
  const trailers: [string, string][] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (!NOT_IN_TRAILER.has(name) && !name.startsWith('x-nebo-')) trailers.push([name, raw[i + 1]!]);
  }
  return trailers.length > 0 ? trailers : null;
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
