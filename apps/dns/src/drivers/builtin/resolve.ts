import { rcodes, types } from './codes.js';
import { type AnswerSet, type NameKey, type Node, parentOf, type ZoneData } from './zone-data.js';

/** A set under the name that it is answered for; of a wildcard that is the name that was asked. */
export interface OwnedSet {
  owner: NameKey;
  set: AnswerSet;
}

/** What a zone says to a question. */
export interface Resolution {
  rcode: number;
  authoritative: boolean;
  answers: OwnedSet[];
  authority: OwnedSet[];
  /** Addresses of name servers that lie below the cut: without them nobody gets there (RFC 9471). */
  glue: OwnedSet[];
  /** Addresses of others, which can also be asked for. */
  extra: OwnedSet[];
}

/** Most CNAMEs that are followed inside a zone; the resolver goes on from there. */
const maxChain = 16;

/**
 * The algorithm of RFC 1034, 4.3.2, with RFC 2308 (negative answers), 4592 (wildcards), 6604 (code of a chain's end) and
 * 8482 (ANY gets one set). The question's name lies in the zone.
 */
export function resolve(zone: ZoneData, asked: NameKey, type: number): Resolution {
  const result: Resolution = {
    rcode: rcodes.NOERROR,
    authoritative: true,
    answers: [],
    authority: [],
    glue: [],
    extra: [],
  };
  const seen = new Set<NameKey>();
  for (let name = asked; ;) {
    seen.add(name);
    const cut = delegationOf(zone, name, type);
    if (cut) {
      refer(zone, cut, result);
      break;
    }
    const node = zone.node(name) ?? wildcardFor(zone, name);
    if (!node) {
      result.rcode = rcodes.NXDOMAIN;
      result.authority.push({ owner: zone.apex, set: zone.negativeSoa });
      break;
    }
    const set = pick(node, type);
    if (set) result.answers.push({ owner: name, set });
    if (set?.type !== types.CNAME || type === types.CNAME || type === types.ANY) {
      if (!set) result.authority.push({ owner: zone.apex, set: zone.negativeSoa });
      break;
    }
    const target = nameOf(set.rdata[0]!);
    if (!holds(zone.apex, target) || seen.has(target) || seen.size > maxChain) break;
    name = target;
  }
  return result;
}

/** The name that a CNAME or NS points to; its letters are ASCII. */
const nameOf = (rdata: Buffer): NameKey => rdata.toString('latin1', 0, rdata.length - 1).toLowerCase();

/** The set of a type, or the CNAME that stands for all types. */
function pick({ sets }: Node, type: number): AnswerSet | undefined {
  const cname = sets.get(types.CNAME);
  if (cname) return cname;
  if (type !== types.ANY) return sets.get(type);
  const [first] = sets.values();
  return first;
}

/** Does a zone hold a name? A suffix counts only from the start of a label. */
export function holds(apex: NameKey, name: NameKey): boolean {
  if (!name.endsWith(apex)) return false;
  let key = name;
  while (key.length > apex.length) key = parentOf(key);
  return key === apex;
}

/** The name nearest to the zone's top at or above `name` that is delegated away. At the cut itself DS is still ours. */
function delegationOf(zone: ZoneData, name: NameKey, type: number): NameKey | null {
  let cut: NameKey | null = null;
  for (let key = name; key !== zone.apex; key = parentOf(key)) {
    if (zone.node(key)?.sets.has(types.NS)) cut = key;
  }
  return cut === name && type === types.DS ? null : cut;
}

function refer(zone: ZoneData, cut: NameKey, result: Resolution): void {
  const set = zone.node(cut)!.sets.get(types.NS)!;
  // After a CNAME the answer section is ours all the same (RFC 2181, 5.4.1).
  result.authoritative = result.answers.length > 0;
  result.authority.push({ owner: cut, set });
  for (const rdata of set.rdata) {
    const host = nameOf(rdata);
    const sets = holds(zone.apex, host) ? addressesAt(zone, host)?.sets : undefined;
    for (const type of [types.A, types.AAAA]) {
      const glue = sets?.get(type);
      if (glue) (holds(cut, host) ? result.glue : result.extra).push({ owner: host, set: glue });
    }
  }
}

/** A name server's own addresses, also below a cut, where they are glue; or a wildcard's, where that is ours to say. */
function addressesAt(zone: ZoneData, host: NameKey): Node | undefined {
  const node = zone.node(host);
  return node || delegationOf(zone, host, types.A) ? node : wildcardFor(zone, host);
}

/** The wildcard at the closest name above that exists (RFC 4592, 3.3.1). */
function wildcardFor(zone: ZoneData, name: NameKey): Node | undefined {
  let closest = parentOf(name);
  while (!zone.node(closest)) closest = parentOf(closest);
  return zone.node(`\x01*${closest}`);
}
