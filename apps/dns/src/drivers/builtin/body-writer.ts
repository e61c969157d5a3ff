import { types } from './codes.js';
import { headerBytes } from './query.js';
import type { OwnedSet } from './resolve.js';
import { type NameKey, parentOf, type ZoneData } from './zone-data.js';

/** Where the names of a value lie: bytes before the first, and how many. Only these types may be compressed (RFC 3597, 4). */
const namesIn: Readonly<Record<number, { at: number; count: number }>> = {
  [types.NS]: { at: 0, count: 1 },
  [types.CNAME]: { at: 0, count: 1 },
  [types.MX]: { at: 2, count: 1 },
  [types.SOA]: { at: 0, count: 2 },
};
/** A pointer has 14 bits. */
const maxPointer = 0x3fff;

/**
 * Writes what stands behind the question. A name whose end was written before, in the question first of all, is cut there and
 * points to it (RFC 1035, 4.1.4); it takes over the spelling of the question, which clients compare.
 */
export class BodyWriter {
  private readonly pieces: Buffer[] = [];
  private readonly offsets = new Map<NameKey, number>();
  private readonly from: number;
  private at: number;

  constructor(
    private readonly zone: ZoneData,
    asked: NameKey,
  ) {
    this.remember(asked, headerBytes);
    // The name's last byte, type and class.
    this.from = headerBytes + asked.length + 5;
    this.at = this.from;
  }

  /** @returns how many records that made */
  add(sets: readonly OwnedSet[]): number {
    let count = 0;
    for (const { owner, set } of sets) {
      for (const rdata of set.rdata) {
        this.put(this.name(owner));
        const head = Buffer.allocUnsafe(10);
        head.writeUInt16BE(set.type, 0);
        head.writeUInt16BE(1, 2);
        head.writeUInt32BE(this.zone.ttlOf(set), 4);
        this.put(head);
        const start = this.at;
        this.value(set.type, rdata);
        head.writeUInt16BE(this.at - start, 8);
        count += 1;
      }
    }
    return count;
  }

  /** Bytes so far. */
  get length(): number {
    return this.at - this.from;
  }

  bytes(): Buffer {
    return Buffer.concat(this.pieces);
  }

  private put(bytes: Buffer): void {
    this.pieces.push(bytes);
    this.at += bytes.length;
  }

  private value(type: number, rdata: Buffer): void {
    const names = namesIn[type];
    if (!names) return this.put(rdata);
    let at = names.at;
    if (at > 0) this.put(rdata.subarray(0, at));
    for (let index = 0; index < names.count; index += 1) {
      const end = rdata.indexOf(0, at);
      this.put(this.name(rdata.toString('latin1', at, end)));
      at = end + 1;
    }
    if (at < rdata.length) this.put(rdata.subarray(at));
  }

  private name(text: string): Buffer {
    const name = text.toLowerCase();
    let end = name;
    while (end !== '' && !this.offsets.has(end)) end = parentOf(end);
    const own = text.length - end.length;
    const pointer = end === '' ? 0 : 0xc000 | this.offsets.get(end)!;
    const bytes = Buffer.allocUnsafe(own + (end === '' ? 1 : 2));
    bytes.write(text.slice(0, own), 'latin1');
    if (end === '') bytes[own] = 0;
    else bytes.writeUInt16BE(pointer, own);
    this.remember(name, this.at);
    return bytes;
  }

  /** A name stands at an offset, and so does each of its ends behind it; the first place counts. */
  private remember(name: NameKey, from: number): void {
    let at = from;
    for (let key = name; key !== '' && at <= maxPointer && !this.offsets.has(key); key = parentOf(key)) {
      this.offsets.set(key, at);
      at += 1 + key.charCodeAt(0);
    }
  }
}
