import { type IncomingMessage } from 'node:http';
import { type Http2ServerRequest } from 'node:http2';
import { type Connection } from './connection.js';
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

const refuse = (code: string, message: string, status = 400): Refused => ({
  ok: false,
  status,
  code,
  message,
});

/**
 * Decides whether a parsed request may be answered at all. Node's parsers refuse most of what is malformed; these are the
 * cases that they let through (measured, reliability.md section 8): duplicate, empty or malformed Host, an absolute-form URL
 * that disagrees with Host, Transfer-Encoding on HTTP/1.0, unknown transfer codings, and any number of headers; on HTTP/2 a
 * Host that disagrees with `:authority` and a scheme that is not the connection's.
 */
export function admit(req: IncomingMessage, connection: Connection): Admitted | Refused {
  const { httpVersion, rawHeaders: raw } = req;
  const isH2 = httpVersion === '2.0';
  if (!isH2 && httpVersion !== '1.1' && httpVersion !== '1.0') {
    return refuse('bad_request', 'This HTTP version is not supported.', 505);
  }

  let authority: string | null = null;
  let codings = 0;
  let bytes = 0;
  let pseudo = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const field = raw[i]!;
    bytes += field.length + raw[i + 1]!.length;
    if (field.charCodeAt(0) === COLON) pseudo += 1;
    // By length first: two fields of many are looked at.
    if (field.length === 4 && field.toLowerCase() === 'host') {
      if (authority !== null) return refuse('bad_host', 'The request has more than one Host header.');
      authority = raw[i + 1]!;
    } else if (field.length === 17 && field.toLowerCase() === 'transfer-encoding') {
      codings++;
      if (codings > 1 || raw[i + 1]!.trim().toLowerCase() !== 'chunked') {
        return refuse('bad_transfer_encoding', 'Only the transfer coding "chunked" is supported.');
      }
    }
  }
  if (raw.length / 2 - pseudo > MAX_HEADERS)
    return refuse('too_many_headers', `A request may have at most ${MAX_HEADERS} headers.`, 431);
  if (bytes > MAX_HEADER_BYTES)
    return refuse('headers_too_large', `The headers may have at most ${MAX_HEADER_BYTES} bytes.`, 431);
  if (codings > 0 && httpVersion !== '1.1') {
    return refuse('bad_transfer_encoding', `HTTP/${httpVersion} has no transfer codings.`);
  }
  const length = req.headers['content-length'];
  if (codings > 0 && length !== undefined) {
    return refuse('bad_transfer_encoding', 'Content-Length and Transfer-Encoding exclude each other.');
  }
  const h2 = isH2 ? h2Facts(req, authority, connection) : null;
  if (h2?.fault) return h2.fault;
  authority = h2?.authority ?? authority;
  if (authority === null) return refuse('bad_host', 'The request has no Host header.');
  const parsed = connection.parseHost(authority);
  if (!parsed) return refuse('bad_host', 'The Host header is malformed.');

  const url = originForm(req.url ?? '', connection.secure, parsed.host, parsed.port);
  if (url === null)
    return refuse('bad_request_target', 'The request target is malformed or disagrees with Host.');

  // What was authenticated in the handshake is what is served (RFC 9110 section 15.5.20).
  if (!connection.covers(parsed.host)) {
    return refuse('misdirected_request', 'The connection was opened for another host name.', 421);
  }
  return {
    ok: true,
    host: parsed.host,
    authority,
    url,
    hasBody: h2 ? h2.hasBody : codings > 0 || (length !== undefined && length !== '0'),
  };
}

/** What pseudo fields of HTTP/2 begin with; no other field can. */
const COLON = 58;

/** What HTTP/2 says in fields of its own (RFC 9113 section 8.3.1). */
function h2Facts(
  req: IncomingMessage,
  host: string | null,
  connection: Connection,
): { fault?: Refused; authority: string | null; hasBody: boolean } {
  const { stream, scheme, headers } = req as unknown as Http2ServerRequest;
  const given = headers[':authority'] ?? null;
  const [named, other] = [given, host].map((one) => (one === null ? null : connection.parseHost(one)));
  const facts = { authority: given ?? host, hasBody: !stream.endAfterHeaders };
  if (given !== null && host !== null && (named?.host !== other?.host || named?.port !== other?.port))
    return { ...facts, fault: refuse('bad_host', 'The Host header disagrees with the authority.') };
  if (scheme !== (connection.secure ? 'https' : 'http'))
    return {
      ...facts,
      fault: refuse('bad_request_target', 'The scheme is not the one of the connection.'),
    };
  // The parser of HTTP/1.1 lets no such byte through either, and no app would get it.
  if (/[^!-~]/.test(req.url ?? ''))
    return { ...facts, fault: refuse('bad_request_target', 'The request target is malformed.') };
  return facts;
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
