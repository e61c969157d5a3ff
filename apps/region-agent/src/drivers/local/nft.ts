import { createHash } from 'node:crypto';
import { type NetworkSpace } from './netns.js';

/** A table whose chains stay as they are, while what its sets and maps hold changes. */
export interface Table {
  family: 'bridge' | 'inet';
  name: string;
  /** Declarations of sets and maps without elements, and chains; in the language of nft. */
  body: string;
  /** Elements by set or map, as nft prints them: `a . b`, `10.0.0.0/8`, `key : value`. */
  elements: Record<string, { kind: 'map' | 'set'; items: readonly string[] }>;
}

/** Rules of a namespace as nft lists them. */
export type Listed = Record<string, unknown>;

/**
 * Makes tables so, in one transaction, and only what differs: a connection notices nothing of a table that is as it should
 * be. Rules that were changed behind the agent's back are found by the digest of their listing, which is the seal.
 * @param seal what an earlier call returned; null or outdated: the tables are made anew, still in one transaction
 * @param present what `listRules` has just said, when it was asked anyway
 * @returns the seal of what is there now
 * @throws Error with what nft said; nothing is changed then
 */
export async function makeTables(
  space: NetworkSpace,
  tables: readonly Table[],
  seal: string | null,
  present?: readonly Listed[],
): Promise<string> {
  const wanted = digest(tables.map(({ family, name, body }) => [family, name, body]));
  present ??= await listRules(space);
  if (seal !== `${wanted}:${shape(tables, present)}`) {
    await space.run(['nft', '-f', '-'], tables.map(anew).join(''));
    return `${wanted}:${shape(tables, await listRules(space))}`;
  }
  const changes = tables.flatMap((table) => differences(table, present));
  if (changes.length > 0) await space.run(['nft', '-f', '-'], changes.join(''));
  return seal;
}

/** @throws Error when nft cannot be asked */
export async function listRules(space: NetworkSpace): Promise<Listed[]> {
  const text = await space.run(['nft', '--json', '--stateless', 'list', 'ruleset']);
  return (JSON.parse(text) as { nftables: Listed[] }).nftables;
}

function anew({ family, name, body, elements }: Table): string {
  const full = Object.entries(elements).map(([set, { items }]) => added(family, name, set, items));
  // The first line makes it, so that the second never fails.
  return `table ${family} ${name}\ndelete table ${family} ${name}\ntable ${family} ${name} {\n${body}\n}\n${full.join('')}`;
}

function differences({ family, name, elements }: Table, present: readonly Listed[]): string[] {
  return Object.entries(elements).flatMap(([set, { kind, items }]) => {
    if (same(held(present, family, name, set), items)) return [];
    return [`flush ${kind} ${family} ${name} ${set}\n`, added(family, name, set, items)];
  });
}

const added = (family: string, name: string, set: string, items: readonly string[]): string =>
  items.length === 0 ? '' : `add element ${family} ${name} ${set} { ${items.join(', ')} }\n`;

const same = (one: readonly string[], other: readonly string[]): boolean => {
  const there = new Set(one);
  return there.size === new Set(other).size && other.every((item) => there.has(item));
};

/** What a set or map holds; empty when there is none. */
export function held(present: readonly Listed[], family: string, table: string, set: string): string[] {
  for (const object of present) {
    const found = (object['set'] ?? object['map']) as
      { family: string; table: string; name: string; elem?: unknown[]; map?: unknown } | undefined;
    if (found?.family !== family || found.table !== table || found.name !== set) continue;
    return (found.elem ?? []).map((item) => {
      if (found.map === undefined) return text(item);
      const [key, value] = item as [unknown, unknown];
      return `${text(key)} : ${text(value)}`;
    });
  }
  return [];
}

/** An element as it stands in the language of nft. */
function text(item: unknown): string {
  if (typeof item === 'string') return item;
  const { concat, prefix, elem } = item as {
    concat?: unknown[];
    prefix?: { addr: string; len: number };
    elem?: { val: unknown };
  };
  if (concat) return concat.map(text).join(' . ');
  if (prefix) return `${prefix.addr}/${prefix.len}`;
  return elem ? text(elem.val) : JSON.stringify(item);
}

/** Digest of the tables' listing without numbers that the kernel gives and without elements. */
function shape(tables: readonly Table[], present: readonly Listed[]): string {
  const mine = present.filter((object) => {
    const [kind, value] = Object.entries(object)[0] as [
      string,
      { family?: string; table?: string; name?: string },
    ];
    const name = kind === 'table' ? value.name : value.table;
    return tables.some((table) => table.family === value.family && table.name === name);
  });
  return digest(
    JSON.parse(
      JSON.stringify(mine, (key, value: unknown) => (key === 'handle' || key === 'elem' ? undefined : value)),
    ),
  );
}

const digest = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 32);
