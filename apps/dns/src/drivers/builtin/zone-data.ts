import { wireKey } from '../../data/names.js';
import type { NameData, ZoneHead } from '../dns-driver.js';
import { types } from './codes.js';

/**
 * A name is a key: its wire form in lower case without the root's zero byte, as text of one character a byte. That is what a
 * query brings, so nothing is converted to look it up, and no byte of a label can be mistaken for a dot.
 */
export type NameKey = string;

/** The name without its first label; only for names that have one. */
export const parentOf = (key: NameKey): NameKey => key.slice(1 + key.charCodeAt(0));

/** A set as it is answered. */
export interface AnswerSet {
  type: number;
  /** Seconds; null: the zone's default. */
  ttl: number | null;
  rdata: readonly Buffer[];
}

/** A name that exists: it has sets, or names below it do (an empty non-terminal, RFC 4592, 2.2.2). */
export interface Node {
  sets: Map<number, AnswerSet>;
  /** How many names with sets lie below. */
  below: number;
}

/** Seconds; of the zone's SOA and of the NS records at its top. */
const apexTtl = 3_600;
/** Seconds that resolvers may remember that something is not there (RFC 2308): short, since people add names and look. */
const negativeTtl = 300;

/** Who stands in SOA and NS records of every zone. */
export interface Authority {
  /** Names of our servers, canonical, the primary first. */
  nameservers: readonly string[];
}

const nameBytes = (key: NameKey): Buffer => Buffer.from(`${key}\0`, 'latin1');

/** The data of one zone, ready to answer from. */
export class ZoneData {
  readonly apex: NameKey;
  /** A new object after every change: what was made from an older one is stale. */
  version: object = {};
  private readonly nodes = new Map<NameKey, Node>();
  private readonly nsSet: AnswerSet;
  private soa: AnswerSet;

  constructor(
    public head: ZoneHead,
    private readonly authority: Authority,
  ) {
    this.apex = wireKey(head.name);
    this.nsSet = {
      type: types.NS,
      ttl: apexTtl,
      rdata: authority.nameservers.map((name) => nameBytes(wireKey(name))),
    };
    this.soa = this.makeSoa();
    this.nodes.set(this.apex, { sets: new Map(), below: 0 });
    this.setApex();
  }

  /** Gives the zone another head and some of its names other sets. */
  change(head: ZoneHead, names: Iterable<NameData>): void {
    this.head = head;
    this.soa = this.makeSoa();
    for (const { name, sets } of names) {
      const bySet = new Map(
        sets.map(({ type, ttl, rdata }) => [types[type], { type: types[type], ttl, rdata }] as const),
      );
      this.put(wireKey(name), bySet);
    }
    this.setApex();
    this.version = {};
  }

  node(key: NameKey): Node | undefined {
    return this.nodes.get(key);
  }

  ttlOf(set: AnswerSet): number {
    return set.ttl ?? this.head.default_ttl;
  }

  /** The SOA for negative answers: its TTL says how long they hold (RFC 2308, 5). */
  get negativeSoa(): AnswerSet {
    return { ...this.soa, ttl: Math.min(apexTtl, negativeTtl) };
  }

  private put(key: NameKey, sets: Map<number, AnswerSet>): void {
    const node = this.nodes.get(key);
    const had = node !== undefined && node.sets.size > 0;
    const has = sets.size > 0;
    if (node) node.sets = sets;
    else if (has) this.nodes.set(key, { sets, below: 0 });
    if (had !== has && key !== this.apex) this.count(key, has ? 1 : -1);
    if (!has && key !== this.apex) this.prune(key);
  }

  private count(key: NameKey, by: number): void {
    for (let above = key; above !== this.apex;) {
      above = parentOf(above);
      const node = this.nodes.get(above);
      if (node) node.below += by;
      else this.nodes.set(above, { sets: new Map(), below: by });
      if (above !== this.apex) this.prune(above);
    }
  }

  private prune(key: NameKey): void {
    const node = this.nodes.get(key);
    if (node && node.sets.size === 0 && node.below === 0) this.nodes.delete(key);
  }

  private setApex(): void {
    const apex = this.nodes.get(this.apex)!;
    apex.sets.set(types.SOA, this.soa);
    apex.sets.set(types.NS, this.nsSet);
  }

  private makeSoa(): AnswerSet {
    const numbers = Buffer.alloc(20);
    // Refresh, retry and expiry are for secondaries, which there are none of; resolvers read the last one only.
    [this.head.serial, 7_200, 1_800, 1_209_600, negativeTtl].forEach((value, index) =>
      numbers.writeUInt32BE(value, index * 4),
    );
    const primary = this.authority.nameservers[0]!;
    const contact = `hostmaster.${this.head.name}`;
    const names = [primary, contact].map((name) => nameBytes(wireKey(name)));
    return { type: types.SOA, ttl: apexTtl, rdata: [Buffer.concat([...names, numbers])] };
  }
}
