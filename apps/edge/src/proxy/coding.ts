import { type IncomingMessage } from 'node:http';
import { chooseEncoding } from '../http/accept.js';
import { isTextType, MIN_COMPRESS_BYTES } from '../static/content.js';

/** Content codings of answers that an app left plain, cheapest first: that is the order in which they win a tie. */
const CODINGS = ['zstd', 'br', 'gzip'] as const;
export type Coding = (typeof CODINGS)[number];

/** Digests of the octets that are sent (RFC 9530, RFC 3230, RFC 1864): another coding would make them lie. */
const DIGESTS = new Set(['content-digest', 'repr-digest', 'digest', 'content-md5']);
/** Without content, or with a part whose offsets mean the plain form. */
const NO_CONTENT = new Set([204, 205, 206, 304]);

/** What decides about an answer's coding. */
interface Facts {
  type: string;
  /** Index of the value in the flat list; -1: there is none. */
  etag: number;
  vary: number;
}

/**
 * Decides whether an app's answer gets a content coding on its way, and changes its header fields for that (RFC 9110 sections
 * 8.4, 8.8.3 and 12.5.5): `Content-Encoding` and `Vary` come, `Content-Length` and `Accept-Ranges` go, a strong `ETag` becomes
 * weak. An answer that would have one for other clients says so in `Vary`. Left alone is what the app has coded, cut or
 * digested itself, what it forbids to change (`no-transform`), what is short, what is no text, and event streams.
 * @param fields the answer's, flat: name, value, …; changed in place
 * @param mayCode false: no more answers are coded at this moment
 */
export function codeAnswer(
  req: IncomingMessage,
  status: number,
  fields: string[],
  mayCode: () => boolean,
): Coding | null {
  if (req.method === 'HEAD' || NO_CONTENT.has(status)) return null;
  const facts = factsOf(fields);
  if (facts === null || !isWorthIt(facts, fields)) return null;
  addVary(fields, facts.vary);
  const coding = accepted(req);
  if (coding === null || !mayCode()) return null;
  const { etag } = facts;
  if (etag >= 0 && isStrong(fields[etag]!)) fields[etag] = `W/${fields[etag]!}`;
  remove(fields, 'content-length');
  remove(fields, 'accept-ranges');
  fields.push('Content-Encoding', coding);
  return coding;
}

function accepted(req: IncomingMessage): Coding | null {
  // Programs of HTTP/1.0 cannot be told where a body of unknown length ends but by its connection.
  if (req.httpVersion === '1.0') return null;
  const value = req.headers['accept-encoding'];
  return chooseEncoding(Array.isArray(value) ? value.join(',') : value, CODINGS) as Coding | null;
}

/** One look at the fields, since every answer goes through it; null: it is to stay as it is. */
function factsOf(fields: readonly string[]): Facts | null {
  const facts: Facts = { type: '', etag: -1, vary: -1 };
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i]!;
    // By length first: most fields are none of these.
    switch (name.length) {
      case 4:
        if (is(name, 'etag')) facts.etag = i + 1;
        else if (is(name, 'vary')) facts.vary = i + 1;
        break;
      case 12:
        if (is(name, 'content-type')) facts.type = fields[i + 1]!.split(';', 1)[0]!.trim().toLowerCase();
        break;
      case 14:
        if (is(name, 'content-length') && Number(fields[i + 1]) < MIN_COMPRESS_BYTES) return null;
        break;
      case 13:
        if (is(name, 'cache-control') && /\bno-transform\b/i.test(fields[i + 1]!)) return null;
        if (is(name, 'content-range')) return null;
        break;
      case 16:
        if (is(name, 'content-encoding')) return null;
        break;
    }
    if (name.length <= 14 && DIGESTS.has(name.toLowerCase())) return null;
  }
  return facts;
}

const is = (name: string, wanted: string): boolean => name.toLowerCase() === wanted;
const isStrong = (etag: string): boolean => etag.startsWith('"');

function isWorthIt({ type, etag }: Facts, fields: readonly string[]): boolean {
  // Every event has to be there at once, and a coder's memory would be held for as long as somebody listens.
  if (type === 'text/event-stream') return false;
  const isData = /[/+](?:json|xml)$/.test(type);
  // Programs send the tag of data back in `If-Match`, which a weak one never fulfils (RFC 9110 section 13.1.1).
  if (isData && etag >= 0 && isStrong(fields[etag]!)) return false;
  return isData || isTextType(type);
}

function addVary(fields: string[], at: number): void {
  if (at < 0) fields.push('Vary', 'Accept-Encoding');
  else if (!/\*|\baccept-encoding\b/i.test(fields[at]!)) fields[at] += ', Accept-Encoding';
}

function remove(fields: string[], name: string): void {
  for (let i = fields.length - 2; i >= 0; i -= 2) if (is(fields[i]!, name)) fields.splice(i, 2);
}
