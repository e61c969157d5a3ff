import type { RecordType } from '@nebo/contracts';
import { parseContent } from '../src/data/content.js';
import type { NameData } from '../src/drivers/dns-driver.js';

/** Numbers from a seed: a failed run can be had again. */
export type Random = (below: number) => number;

export function randomOf(seed: number): Random {
  let state = seed >>> 0 || 1;
  return (below) => {
    // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % below;
  };
}

/** A set as the API would take it. */
export interface TextSet {
  name: string;
  type: RecordType;
  ttl: number | null;
  contents: string[];
}

const labels = ['a', 'b', 'c', 'mail', '_x', 'xn--e1afmkfd', 'a-b', 'w0'];
const pick = <T>(random: Random, from: readonly T[]): T => from[random(from.length)]!;

/** A name in a zone: few labels, so that names meet, contain and miss each other often. */
export function randomName(random: Random, zone: string, star: boolean): string {
  const depth = 1 + random(4);
  const parts = Array.from({ length: depth }, () => pick(random, labels));
  if (star && random(4) === 0) parts[0] = '*';
  // Stars in the middle are legal names that mean nothing (RFC 4592, 2.1.3); the API refuses them in records.
  if (!star && random(12) === 0) parts[random(parts.length)] = '*';
  return `${parts.join('.')}.${zone}`;
}

function target(random: Random, zone: string): string {
  if (random(4) === 0) return pick(random, ['elsewhere.example.', 'WWW.Else.example.', 'x.org.']);
  return random(8) === 0 ? zone : randomName(random, zone, false).replaceAll('*', 'a');
}

const makers: Record<RecordType, (random: Random, zone: string) => string> = {
  A: (random) => `192.0.2.${random(256)}`,
  AAAA: (random) =>
    pick(random, ['2001:db8::', '::', '2001:DB8:0:0:1::', 'fe80::1:']) + (1 + random(9)).toString(16),
  CNAME: target,
  NS: target,
  MX: (random, zone) => `${random(100)} ${target(random, zone)}`,
  SRV: (random, zone) => `${random(9)} ${random(9)} ${random(65_536)} ${target(random, zone)}`,
  CAA: (random) =>
    pick(random, [
      '0 issue "ca.example.net"',
      '128 issuewild ";"',
      '0 iodef "mailto:a@example.com"',
      '0 issue ca.test',
    ]),
  TXT: (random) =>
    pick(random, [
      '"v=spf1 -all"',
      '"a" "b c"',
      '"quote \\" back \\\\ byte \\000\\255"',
      `"${'k'.repeat(255)}" "${'l'.repeat(200)}"`,
      '""',
      `"${random(1000)}"`,
    ]),
};

/** Sets that the API's rules would let stand together in one zone, each name once. */
export function randomZone(random: Random, zone: string): TextSet[] {
  const sets = new Map<string, TextSet>();
  const names = Array.from({ length: 3 + random(14) }, () =>
    random(8) === 0 ? zone : randomName(random, zone, true),
  );
  const types = Object.keys(makers) as RecordType[];
  for (const name of names) {
    const cname = name !== zone && random(4) === 0;
    const has = [...sets.values()].filter((set) => set.name === name);
    if (has.some(({ type }) => type === 'CNAME') || (cname && has.length > 0)) continue;
    const star = name.includes('*');
    const wanted: RecordType[] = cname
      ? ['CNAME']
      : name !== zone && !star && random(4) === 0
        ? ['NS']
        : Array.from({ length: 1 + random(3) }, () => pick(random, types)).filter(
            (type) => type !== 'CNAME' && (type !== 'NS' || (name !== zone && !star)),
          );
    for (const type of wanted) {
      // knot 3.2 falls silent over dozens of values with names, so long sets are of other types.
      const long = type === 'A' || type === 'AAAA' || type === 'TXT';
      const many = type === 'CNAME' ? 1 : long && random(8) === 0 ? 40 : 1 + random(3);
      const byValue = new Map<string, string>();
      for (let index = 0; index < many; index += 1) {
        // "No mail" stands alone (RFC 7505, 3).
        const content = type === 'MX' && many === 1 && random(4) === 0 ? '0 .' : makers[type](random, zone);
        if (type === 'CNAME' && content.toLowerCase() === name) continue;
        byValue.set(parseContent(type, content).digest.toString('hex'), content);
      }
      if (byValue.size > 0)
        sets.set(`${name} ${type}`, {
          name,
          type,
          ttl: random(3) === 0 ? null : random(1000),
          contents: [...byValue.values()],
        });
    }
  }
  return [...sets.values()];
}

/** Sets as the driver takes them. */
export function namesOf(sets: readonly TextSet[]): NameData[] {
  const names = new Map<string, NameData>();
  for (const { name, type, ttl, contents } of sets) {
    const data = names.get(name) ?? { name, sets: [] };
    names.set(name, data);
    data.sets.push({ type, ttl, rdata: contents.map((content) => parseContent(type, content).rdata) });
  }
  return [...names.values()];
}

/** The same zone as a zone file (RFC 1035, 5), with what our server adds by itself. */
export function zoneFile(
  zone: string,
  sets: readonly TextSet[],
  head: { nameservers: readonly string[]; serial: number; defaultTtl: number },
): string {
  return [
    `${zone} 3600 IN SOA ${head.nameservers[0]} hostmaster.${zone} ${head.serial} 7200 1800 1209600 300`,
    ...head.nameservers.map((name) => `${zone} 3600 IN NS ${name}`),
    ...sets.flatMap(({ name, type, ttl, contents }) =>
      contents.map((content) => `${name} ${ttl ?? head.defaultTtl} IN ${type} ${content}`),
    ),
    '',
  ].join('\n');
}
