import { classIn, flags, rcodes, types } from './codes.js';
import type { NameKey } from './zone-data.js';

/** A query, as far as it could be read. */
export interface Query {
  /** A code that ends it here, or null. */
  refusal: number | null;
  /** Name in lower case. */
  key: NameKey;
  type: number;
  class: number;
  /** Where the question ends, bytes; 12 when there is none to repeat. */
  questionEnd: number;
  edns: Edns | null;
}

/** What the query's OPT record says (RFC 6891). */
export interface Edns {
  /** Most bytes of an answer over UDP. */
  size: number;
  version: number;
  dnssecOk: boolean;
}

export const headerBytes = 12;
/** Most bytes of a name with the root's (RFC 1035, 3.1). */
const maxName = 255;
/** More records than this in a query is nobody's honest question. */
const maxRecords = 16;

/** Room for one name; a query is read in one piece, so one is enough for all. */
export class QueryReader {
  private readonly name = Buffer.alloc(maxName + 1);

  /**
   * Reads a query of at least 12 bytes that is no response. Whatever the bytes are, it ends.
   * @returns the query, with FORMERR or NOTIMP as `refusal` when it cannot be answered
   */
  read(bytes: Buffer): Query {
    const query: Query = { refusal: null, key: '', type: 0, class: 0, questionEnd: headerBytes, edns: null };
    if ((word(bytes, 2) & flags.opcode) !== 0) return refused(query, rcodes.NOTIMP);
    if (word(bytes, 4) !== 1) return refused(query, rcodes.FORMERR);
    const end = this.question(bytes, query);
    if (end < 0) return refused(query, rcodes.FORMERR);
    query.questionEnd = end;
    const records = word(bytes, 6) + word(bytes, 8) + word(bytes, 10);
    if (records === 0) return end === bytes.length ? query : refused(query, rcodes.FORMERR);
    if (records > maxRecords || !readRecords(bytes, end, records, query))
      return refused(query, rcodes.FORMERR);
    return query;
  }

  /** @returns where the question ends, or -1 */
  private question(bytes: Buffer, query: Query): number {
    const { name } = this;
    let at = headerBytes;
    let length = 0;
    for (;;) {
      const label = bytes[at];
      // Pointers have nothing to point to yet; the other two upper bits are no labels.
      if (label === undefined || label > 63) return -1;
      at += 1;
      if (label === 0) break;
      if (length + label + 2 > maxName || at + label > bytes.length) return -1;
      name[length] = label;
      length += 1;
      for (const end = at + label; at < end; at += 1, length += 1) {
        const byte = bytes[at]!;
        name[length] = byte >= 65 && byte <= 90 ? byte + 32 : byte;
      }
    }
    if (at + 4 > bytes.length) return -1;
    query.key = name.toString('latin1', 0, length);
    query.type = word(bytes, at);
    query.class = word(bytes, at + 2);
    return at + 4;
  }
}

const refused = (query: Query, refusal: number): Query => ({ ...query, refusal });

/** The 16-bit number at an offset; its bytes are there. */
export const word = (bytes: Buffer, at: number): number => (bytes[at]! << 8) | bytes[at + 1]!;

/** Walks over the records behind the question, up to the last byte. @returns false for rubbish */
function readRecords(bytes: Buffer, from: number, count: number, query: Query): boolean {
  const additional = word(bytes, 10);
  let at = from;
  for (let index = 0; index < count; index += 1) {
    const root = bytes[at] === 0;
    at = skipName(bytes, at);
    if (at < 0 || at + 10 > bytes.length) return false;
    const type = word(bytes, at);
    const length = word(bytes, at + 8);
    if (at + 10 + length > bytes.length) return false;
    if (type === types.OPT) {
      const misplaced = !root || index < count - additional || query.edns !== null;
      if (misplaced || !wholeOptions(bytes, at + 10, length)) return false;
      query.edns = {
        size: word(bytes, at + 2),
        version: bytes[at + 5]!,
        dnssecOk: (bytes[at + 6]! & 0x80) !== 0,
      };
    }
    at += 10 + length;
  }
  return at === bytes.length;
}

/** @returns where the name ends, or -1; a pointer ends it, wherever it points to */
function skipName(bytes: Buffer, from: number): number {
  let at = from;
  for (;;) {
    const label = bytes[at];
    if (label === undefined) return -1;
    if (label === 0) return at + 1;
    if (label >= 192) return at + 2;
    if (label > 63 || at - from > maxName) return -1;
    at += 1 + label;
  }
}

function wholeOptions(bytes: Buffer, from: number, length: number): boolean {
  const end = from + length;
  let at = from;
  while (at + 4 <= end) at += 4 + word(bytes, at + 2);
  return at === end;
}

/** Is it the Internet's class? All others have no zones here. */
export const isInternet = (query: Query): boolean => query.class === classIn;
