import { flags, rcodeNames, rcodes, types } from './codes.js';
import { headerBytes, isInternet, type Query, QueryReader, word } from './query.js';
import { resolve } from './resolve.js';
import { BodyWriter } from './body-writer.js';
import { type NameKey, parentOf, type ZoneData } from './zone-data.js';
import type { ZoneTable } from './zone-table.js';

/** Most bytes of an answer over UDP, whatever a query allows: no fragments (RFC 9715), and little to amplify. */
export const udpLimit = 1_232;
/** What a client without EDNS takes (RFC 1035, 2.3.4). */
const plainLimit = 512;
const tcpLimit = 65_535;
const optBytes = 11;
/** Answers that are kept ready; beyond that all are forgotten, which costs each of them one look. */
const maxKept = 20_000;
/** Most bytes of an answer that is kept. */
const maxKeptBytes = 4_096;

/** Everything of an answer behind the question. Pointers go into the question, so it fits every spelling of the name. */
interface Body {
  bytes: Buffer;
  rcode: number;
  authoritative: boolean;
  answers: number;
  authority: number;
  /** Where the bytes may end, shortest first: with how many additional records. Shorter than the first is cut off. */
  ends: readonly { bytes: number; additional: number }[];
}

interface Kept {
  body: Body;
  zone: ZoneData;
  zoneVersion: object;
  tableVersion: object;
}

const nothing = Buffer.alloc(0);
const emptyBody = (rcode: number): Body => ({
  bytes: nothing,
  rcode,
  authoritative: false,
  answers: 0,
  authority: 0,
  ends: [{ bytes: 0, additional: 0 }],
});
const refusal = emptyBody(rcodes.REFUSED);

/** Turns the bytes of a query into those of its answer. Knows nothing of sockets. */
export class Responder {
  private readonly reader = new QueryReader();
  private readonly kept = new Map<string, Kept>();
  private readonly counts: Record<string, number> = {};
  dropped = 0;

  constructor(private readonly zones: ZoneTable) {}

  /** How many answers are kept ready. */
  get keptAnswers(): number {
    return this.kept.size;
  }

  /** Answers by the name of their code. */
  get answered(): Readonly<Record<string, number>> {
    return this.counts;
  }

  /**
   * @param stream over TCP, where answers may be long
   * @param cut answer with a mere "ask over TCP": the rate is too high for more
   * @returns null for what gets no answer: a response (two servers would talk for ever), or less than a header
   */
  answer(bytes: Buffer, stream = false, cut = false): Buffer | null {
    if (bytes.length < headerBytes || (bytes[2]! & 0x80) !== 0) {
      this.dropped += 1;
      return null;
    }
    const query = this.reader.read(bytes);
    const body = this.bodyOf(query);
    const limit = stream ? tcpLimit : Math.min(udpLimit, Math.max(plainLimit, query.edns?.size ?? 0));
    const answer = assemble(bytes, query, body, limit, cut);
    const name = rcodeNames[body.rcode] ?? 'other';
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    return answer;
  }

  private bodyOf(query: Query): Body {
    if (query.refusal !== null) return emptyBody(query.refusal);
    if (query.edns && query.edns.version !== 0) return emptyBody(rcodes.BADVERS);
    // Zones are not handed out, and what is no class of ours is nobody's.
    if (!isInternet(query) || query.type === types.AXFR || query.type === types.IXFR) return refusal;
    if (query.type === types.OPT) return emptyBody(rcodes.FORMERR);
    const key = query.key + String.fromCharCode(query.type);
    const kept = this.kept.get(key);
    if (kept && kept.zone.version === kept.zoneVersion && this.zones.version === kept.tableVersion)
      return kept.body;
    const zone = this.zoneFor(query);
    if (!zone) return refusal;
    const body = makeBody(zone, query.key, query.type);
    if (body.bytes.length <= maxKeptBytes) {
      if (this.kept.size >= maxKept) this.kept.clear();
      this.kept.set(key, {
        body,
        zone,
        zoneVersion: zone.version,
        tableVersion: this.zones.version,
      });
    }
    return body;
  }

  /** The DS of a zone lies in its parent zone, where that is ours too (RFC 4035, 3.1.4.1). */
  private zoneFor({ key, type }: Query): ZoneData | null {
    const zone = this.zones.find(key);
    if (zone && type === types.DS && key === zone.apex) return this.zones.find(parentOf(key)) ?? zone;
    return zone;
  }
}

function assemble(query: Buffer, read: Query, body: Body, limit: number, cut: boolean): Buffer {
  const { questionEnd, edns } = read;
  const tail = edns ? optBytes : 0;
  const room = limit - questionEnd - tail;
  const end = cut ? undefined : body.ends.findLast(({ bytes }) => bytes <= room);
  const truncated = end === undefined;
  const length = end?.bytes ?? 0;
  const answer = Buffer.allocUnsafe(questionEnd + length + tail);
  query.copy(answer, 0, 0, questionEnd);
  let head = flags.response | (word(query, 2) & (flags.opcode | flags.recursion)) | (body.rcode & 15);
  if (body.authoritative) head |= flags.authoritative;
  if (truncated) head |= flags.truncated;
  answer.writeUInt16BE(head, 2);
  answer.writeUInt16BE(questionEnd > headerBytes ? 1 : 0, 4);
  answer.writeUInt16BE(truncated ? 0 : body.answers, 6);
  answer.writeUInt16BE(truncated ? 0 : body.authority, 8);
  answer.writeUInt16BE((end?.additional ?? 0) + (edns ? 1 : 0), 10);
  if (length > 0) body.bytes.copy(answer, questionEnd, 0, length);
  if (edns) writeOpt(answer, questionEnd + length, body.rcode >> 4, edns.dnssecOk);
  return answer;
}

function writeOpt(answer: Buffer, at: number, extendedRcode: number, dnssecOk: boolean): void {
  answer[at] = 0;
  answer.writeUInt16BE(types.OPT, at + 1);
  answer.writeUInt16BE(udpLimit, at + 3);
  answer[at + 5] = extendedRcode;
  answer[at + 6] = 0;
  // The bit is repeated, signatures or not (RFC 3225, 3).
  answer.writeUInt16BE(dnssecOk ? 0x8000 : 0, at + 7);
  answer.writeUInt16BE(0, at + 9);
}

function makeBody(zone: ZoneData, asked: NameKey, type: number): Body {
  const { rcode, authoritative, answers, authority, glue, extra } = resolve(zone, asked, type);
  const writer = new BodyWriter(zone, asked);
  const counts = { answers: writer.add(answers), authority: writer.add(authority) };
  let additional = writer.add(glue);
  const ends = [{ bytes: writer.length, additional }];
  for (const set of extra) {
    additional += writer.add([set]);
    ends.push({ bytes: writer.length, additional });
  }
  return { rcode, authoritative, ...counts, ends, bytes: writer.bytes() };
}
