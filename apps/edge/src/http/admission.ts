import { type IncomingMessage } from 'node:http';
import { parseHost } from './host.js';

/** At most so many header fields in a request (reliability.md section 8). */
export const MAX_HEADERS = 100;
/** At most so many bytes of request line and headers. */
export const MAX_HEADER_BYTES = 16 * 1024;

export interface Admitted {
  ok: true;
  /** Normalised host name that routes are looked up by. */
  host: string;
  /** The Host header as the client sent it; what an app sees. */
  authority: string;
  /** Origin form: path and query, always starting with `/`, not decoded. */
  url: string;
  /** Whether the request carries a body. */
  hasBody: boolean;
}

export interface Refused {
  ok: false;
  status: number;
  code: string;
  message: string;
}

/** What the connection itself knows. */
export interface ConnectionFacts {
  secure: boolean;
  /** SNI of the handshake; null on plain connections. */
  servername: string | null;
}

const refuse = (code: string, message: string, status = 400): Refused => ({
  ok: false,
  status,
  code,
  message,
});

/**
 * Decides whether a parsed request may be answered at all. Node's parser refuses most of what is malformed; these are the
 * cases that it lets through (measured, reliability.md section 8): duplicate, empty or malformed Host, an absolute-form URL
 * that disagrees with Host, Transfer-Encoding on HTTP/1.0, unknown transfer codings, and any number of headers.
 */
export function admit(req: IncomingMessage, connection: ConnectionFacts): Admitted | Refused {
  if (req.httpVersion !== '1.1' && req.httpVersion !== '1.0') {
    return refuse('bad_request', 'This HTTP version is not supported.', 505);
  }
  const raw = req.rawHeaders;
  if (raw.length / 2 > MAX_HEADERS) {
    return refuse('too_many_headers', `A request may have at most ${MAX_HEADERS} headers.`, 431);
  }

  let authority: string | null = null;
  let codings = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (name === 'host') {
      if (authority !== null) return refuse('bad_host', 'The request has more than one Host header.');
      authority = raw[i + 1]!;
    } else if (name === 'transfer-encoding') {
      codings++;
      if (codings > 1 || raw[i + 1]!.trim().toLowerCase() !== 'chunked') {
        return refuse('bad_transfer_encoding', 'Only the transfer coding "chunked" is supported.');
      }
    }
  }
  if (codings > 0 && req.httpVersion === '1.0') {
    return refuse('bad_transfer_encoding', 'HTTP/1.0 has no transfer codings.');
  }
  if (codings > 0 && req.headers['content-length'] !== undefined) {
    return refuse('bad_transfer_encoding', 'Content-Length and Transfer-Encoding exclude each other.');
  }
  if (authority === null) return refuse('bad_host', 'The request has no Host header.');
  const parsed = parseHost(authority);
  if (!parsed) return refuse('bad_host', 'The Host header is malformed.');

  const url = originForm(req.url ?? '', connection.secure, parsed.host, parsed.port);
  if (url === null)
    return refuse('bad_request_target', 'The request target is malformed or disagrees with Host.');

  // One certificate, one host: what was authenticated in the handshake is what is served (RFC 9110 section 15.5.20).
  if (connection.secure && connection.servername !== parsed.host) {
    return refuse('misdirected_request', 'The connection was opened for another host name.', 421);
  }
  const length = req.headers['content-length'];
  return {
    ok: true,
    host: parsed.host,
    authority,
    url,
    hasBody: codings > 0 || (length !== undefined && length !== '0'),
  };
}

/**
 * The request target as path and query. Absolute form is accepted only when scheme, name and port are the ones of the
 * connection and of Host: otherwise two readers of one request could see two sites.
 */
function originForm(target: string, secure: boolean, host: string, port: number | null): string | null {
  if (target.includes('#')) return null;
  if (target.startsWith('/')) return target;
  const match = /^([a-z]+):\/\/([^/?]*)(.*)$/i.exec(target);
  if (!match) return null;
  const scheme = secure ? 'https' : 'http';
  if (match[1]!.toLowerCase() !== scheme) return null;
  const named = parseHost(match[2]!);
  const usual = secure ? 443 : 80;
  if (!named || named.host !== host || (named.port ?? usual) !== (port ?? usual)) return null;
  return match[3]!.startsWith('/') ? match[3]! : `/${match[3]!}`;
}
