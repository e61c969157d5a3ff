import { createHash } from 'node:crypto';
import { isIPv4, isIPv6 } from 'node:net';
import type { RecordType } from '@nebo/contracts';
import { targetName, wireKey } from './names.js';

/** A value of a record, read. */
export interface Content {
  /** Wire form (RFC 1035, 3.3 and the RFC of the type), names without compression. */
  rdata: Buffer;
  /** SHA-256 of the wire form with names in lower case: equal for two spellings of one value. */
  digest: Buffer;
  /** The name that it points to, in lower case: CNAME and NS. */
  target: string | null;
}

/** Why a text is no value of its type; the message is for the user. */
export class ContentError extends Error {
  override readonly name = 'ContentError';
}

const fail = (message: string): never => {
  throw new ContentError(message);
};

/**
 * Reads a value in the form of zone files.
 * @throws ContentError
 */
export function parseContent(type: RecordType, content: string): Content {
  const { wire, target = null } = readers[type](content);
  const rdata = Buffer.concat(wire.map((part) => (typeof part === 'string' ? nameBytes(part) : part)));
  const canonical = Buffer.concat(
    wire.map((part) => (typeof part === 'string' ? nameBytes(part.toLowerCase()) : part)),
  );
  return { rdata, digest: createHash('sha256').update(canonical).digest(), target };
}

/** Pieces of a value: names as text, everything else as bytes. */
interface Pieces {
  wire: (string | Buffer)[];
  target?: string;
}

const nameBytes = (name: string): Buffer => Buffer.from(`${wireKey(name)}\0`, 'latin1');

const readers: Record<RecordType, (content: string) => Pieces> = {
  A: (content) => {
    if (!isIPv4(content)) fail('must be an IPv4 address like 192.0.2.1');
    return { wire: [Buffer.from(content.split('.').map(Number))] };
  },
  AAAA: (content) => {
    if (!isIPv6(content) || content.includes('%')) fail('must be an IPv6 address like 2001:db8::1');
    return { wire: [ipv6Bytes(content)] };
  },
  CNAME: (content) => named(requireTarget(content)),
  NS: (content) => named(requireTarget(content)),
  MX: (content) => {
    const [preference, host, ...rest] = words(content);
    if (host === undefined || rest.length > 0)
      fail('must be a preference and a mail server: 10 mail.example.com.');
    const number = integer(preference!, 65_535, 'the preference');
    // A lone dot says that the name takes no mail (RFC 7505).
    const target = requireTarget(host!, true);
    if (target === '.' && number !== 0) fail('"no mail" is written with preference 0: "0 ." (RFC 7505)');
    return { wire: [uint16(number), target] };
  },
  SRV: (content) => {
    const [priority, weight, port, host, ...rest] = words(content);
    if (host === undefined || rest.length > 0)
      fail('must be priority, weight, port and host: 10 5 5060 sip.example.com.');
    return {
      wire: [
        uint16(integer(priority!, 65_535, 'the priority')),
        uint16(integer(weight!, 65_535, 'the weight')),
        uint16(integer(port!, 65_535, 'the port')),
        requireTarget(host!, true),
      ],
    };
  },
  CAA: (content) => {
    const [, flags, tag, rest] = /^(\S+)\s+(\S+)\s+(\S.*)$/s.exec(content.trim()) ?? [];
    if (rest === undefined) fail('must be flags, tag and value: 0 issue "ca.example.net"');
    if (!/^[a-zA-Z0-9]{1,15}$/.test(tag!)) fail('the tag of a CAA has 1 to 15 letters and digits');
    const value = rest!.startsWith('"') ? quotedStrings(rest!) : [Buffer.from(rest!)];
    if (value.length !== 1 || (!rest!.startsWith('"') && /[\s"]/.test(rest!)))
      fail('the value of a CAA is one string, in quotes when it has spaces');
    const name = Buffer.from(tag!.toLowerCase());
    return {
      wire: [Buffer.from([integer(flags!, 255, 'the flags'), name.length]), name, value[0]!],
    };
  },
  TXT: (content) => {
    // Without quotes it is one value as it stands: what providers of mail and certificates tell people to paste.
    const strings = content.trimStart().startsWith('"')
      ? quotedStrings(content.trim())
      : [Buffer.from(content)];
    const refused = !content.trimStart().startsWith('"') && hasControls(content);
    if (refused) fail('control characters are written as \\DDD in quotes');
    return { wire: strings.flatMap(characterStrings) };
  },
};

const named = (target: string): Pieces => ({ wire: [target], target: target.toLowerCase() });

const words = (content: string): string[] => content.trim().split(/\s+/);

const hasControls = (text: string): boolean =>
  [...text].some((character) => character < ' ' || character === '\x7f');

function requireTarget(text: string, root = false): string {
  const trimmed = text.trim();
  const name = targetName(trimmed);
  if (name === null || (name === '.' && !root))
    return fail(
      isIPv4(trimmed) || isIPv6(trimmed)
        ? 'must point to a name, not to an address'
        : 'must point to a full name like host.example.com.',
    );
  return name;
}

function integer(text: string, max: number, what: string): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value <= max)) fail(`${what} must be a whole number from 0 to ${max}`);
  return value;
}

function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

/** The URL parser knows every spelling; its host is eight groups at most, none with leading zeros. */
function ipv6Bytes(text: string): Buffer {
  const host = new URL(`http://[${text}]/`).hostname.slice(1, -1);
  const [before, after] = host.split('::') as [string, string | undefined];
  const groups = (part: string | undefined) => (part ? part.split(':') : []);
  const head = groups(before);
  const tail = groups(after);
  const all = [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail];
  return Buffer.concat(all.map((group) => uint16(Number.parseInt(group, 16))));
}

/** Strings in quotes with spaces between them; `\"`, `\\` and `\DDD` as in zone files (RFC 1035, 5.1). */
function quotedStrings(text: string): Buffer[] {
  const strings: Buffer[] = [];
  let at = 0;
  while (at < text.length) {
    if (text[at] !== '"') fail('quotes do not match: each string stands in a pair of them');
    const bytes: Buffer[] = [];
    for (at += 1; text[at] !== '"';) {
      if (at >= text.length) fail('a quote is missing at the end');
      const [piece, length] = character(text, at);
      bytes.push(piece);
      at += length;
    }
    strings.push(Buffer.concat(bytes));
    at += 1;
    const gap = /^\s*/.exec(text.slice(at))![0].length;
    if (gap === 0 && at < text.length) fail('strings are separated by a space');
    at += gap;
  }
  return strings;
}

/** One character of a quoted string, and how many characters of the text it took. */
function character(text: string, at: number): [Buffer, number] {
  if (text[at] !== '\\') {
    const point = String.fromCodePoint(text.codePointAt(at)!);
    if (hasControls(point)) fail('control characters are written as \\DDD in quotes');
    return [Buffer.from(point), point.length];
  }
  const digits = /^\d{3}/.exec(text.slice(at + 1))?.[0];
  if (digits !== undefined) {
    if (Number(digits) > 255) fail(`\\${digits} is no byte: \\DDD goes from 000 to 255`);
    return [Buffer.from([Number(digits)]), 4];
  }
  if (at + 1 >= text.length) fail('a backslash stands at the end');
  const point = String.fromCodePoint(text.codePointAt(at + 1)!);
  return [Buffer.from(point), 1 + point.length];
}

/** A string in pieces of at most 255 bytes, each with its length: long keys may be given whole. */
function characterStrings(bytes: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at === 0 || at < bytes.length; at += 255) {
    const piece = bytes.subarray(at, at + 255);
    pieces.push(Buffer.from([piece.length]), piece);
  }
  return pieces;
}
