import { type Readable } from 'node:stream';
import { isAll, TEXT, TOKEN, VISIBLE } from './octets.js';

/** A request as it is sent. */
export interface Http1Request {
  method: string;
  /** Path and query; visible ASCII. */
  path: string;
  /**
   * Name, value, name, …: sent as they are, in this order, Latin-1. Host has to be among them; Transfer-Encoding may not, and
   * Content-Length says how long the body is.
   */
  headers: readonly string[];
  /**
   * A stream is read only when the connection is made, and never destroyed; what is left of it after the exchange is for the
   * caller to drop. Without Content-Length it is sent in chunks. Text goes as UTF-8.
   */
  body: Readable | Buffer | string | null;
}

/** How a request goes over the wire. */
export interface WrittenRequest {
  /** The head, Latin-1. */
  head: string;
  /** Bytes that the body has by Content-Length; null: it goes in chunks. */
  length: number | null;
  /** The body waits for `100 Continue`. */
  isExpecting: boolean;
}

/** Methods whose requests without a body say so (RFC 9110 section 8.6). */
const WITH_BODY = new Set(['POST', 'PUT', 'PATCH']);

/**
 * The head of a request.
 * @throws TypeError for what would not be one request: control characters, no Host or two, a length that is none
 */
export function writeRequest({ method, path, headers, body }: Http1Request): WrittenRequest {
  if (method === '' || !isAll(method, TOKEN)) throw new TypeError('the method is no token');
  if (path === '' || !isAll(path, VISIBLE))
    throw new TypeError('the path has a character that it may not have');
  let head = `${method} ${path} HTTP/1.1\r\n`;
  let hosts = 0;
  let length: number | null = null;
  let isExpecting = false;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at]!;
    const value = headers[at + 1]!;
    if (name === '' || !isAll(name, TOKEN)) throw new TypeError('a header has no proper name');
    if (!isAll(value, TEXT)) throw new TypeError('a header has a character that it may not have');
    switch (name.length) {
      case 4:
        if (name.toLowerCase() === 'host') hosts += 1;
        break;
      case 6:
        if (name.toLowerCase() === 'expect') isExpecting = value.toLowerCase() === '100-continue';
        break;
      case 14:
        if (name.toLowerCase() === 'content-length') {
          if (length !== null || !/^\d{1,15}$/.test(value)) throw new TypeError('the Content-Length is none');
          length = Number(value);
        }
        break;
      case 17:
        if (name.toLowerCase() === 'transfer-encoding')
          throw new TypeError('the transfer coding is not for the caller to choose');
        break;
      default:
    }
    head += `${name}: ${value}\r\n`;
  }
  if (hosts !== 1) throw new TypeError('a request has one Host');
  const size = sizeOf(body);
  if (length === null) {
    length = size;
    if (size === null) head += 'Transfer-Encoding: chunked\r\n';
    else if (body !== null || WITH_BODY.has(method)) head += `Content-Length: ${size}\r\n`;
  } else if (size !== null && length !== size)
    throw new TypeError('the Content-Length is not that of the body');
  head += '\r\n';
  return { head, length, isExpecting: isExpecting && body !== null };
}

/** Bytes of a body; null: a stream's, which nobody knows. */
function sizeOf(body: Http1Request['body']): number | null {
  if (body === null) return 0;
  if (typeof body === 'string') return Buffer.byteLength(body);
  return Buffer.isBuffer(body) ? body.length : null;
}
