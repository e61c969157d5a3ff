import { type BuildSpec } from '@nebo/contracts';
import { readPackage } from './node/package-json.js';
import { at, type Look } from './plan.js';

/** Which Node a source asks for, and where. */
export interface AskedNode {
  version: string;
  by: string;
}

/** The setting before the files, as people expect of it. */
export async function askedNode(
  { tree, appDir }: Pick<Look, 'tree' | 'appDir'>,
  { nodejs_version }: Pick<BuildSpec, 'nodejs_version'>,
): Promise<AskedNode | null> {
  if (nodejs_version?.trim()) return { version: nodejs_version.trim(), by: 'nodejs_version' };
  const engine = (await readPackage(tree, appDir))?.nodeEngine;
  if (engine) return { version: engine, by: 'engines of package.json' };
  for (const name of ['.nvmrc', '.node-version']) {
    const text = (await tree.read(at({ appDir }, name)))?.trim().split(/\r?\n/, 1)[0];
    if (text) return { version: text, by: name };
  }
  return null;
}

/**
 * Says which Node really runs, and whether that is what was asked for: a region has one Node only.
 * @param present version without `v`
 */
export function nodeWords(asked: AskedNode | null, present: string): string {
  if (asked === null) return `Node ${present}`;
  const fits = meets(present, asked.version);
  if (fits === true) return `Node ${present}, as ${asked.by} asks (${asked.version})`;
  const but = fits === null ? 'which this region cannot read' : 'which this region does not have';
  return `note: ${asked.by} asks for Node ${asked.version}, ${but}: it builds and runs with Node ${present}`;
}

type Triple = [number, number | null, number | null];

/** No range that anybody has written is longer, characters. */
const longestRange = 256;

/** Whether a version lies in a range of npm's kind; null: the range is none. */
export function meets(version: string, range: string): boolean | null {
  if (range.length > longestRange) return null;
  const present = triple(version);
  if (present === null) return null;
  let any = false;
  for (const part of range.split('||')) {
    const fits = meetsAll(present, part.trim());
    if (fits === null) return null;
    any ||= fits;
  }
  return any;
}

function meetsAll(present: Triple, text: string): boolean | null {
  const span = /^(\S+)\s+-\s+(\S+)$/.exec(text);
  const comparators = span
    ? [`>=${span[1]}`, `<=${span[2]}`]
    : text.replace(/([<>=~^]+)\s+/g, '$1').split(/\s+/);
  for (const comparator of comparators) {
    if (['', '*', 'x', 'latest', 'node', 'current'].includes(comparator)) continue;
    const found = /^(>=|<=|>|<|=|\^|~>?)?v?(.+)$/.exec(comparator);
    const wanted = found ? triple(found[2]!) : null;
    if (wanted === null) return null;
    if (!fitsOne(present, found![1] ?? '=', wanted)) return false;
  }
  return true;
}

function fitsOne(present: Triple, sign: string, wanted: Triple): boolean {
  const order = compare(present, wanted);
  switch (sign) {
    case '>=':
      return order >= 0;
    case '>':
      return order > 0;
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '^':
      return present[0] === wanted[0] && order >= 0;
    case '=':
      return order === 0;
    default:
      return present[0] === wanted[0] && (wanted[1] === null || present[1] === wanted[1]) && order >= 0;
  }
}

/** Parts that the wanted version leaves open are equal. */
function compare(present: Triple, wanted: Triple): number {
  for (let i = 0; i < 3; i++) {
    if (wanted[i] === null) return 0;
    const difference = (present[i] ?? 0) - wanted[i]!;
    if (difference !== 0) return difference;
  }
  return 0;
}

function triple(text: string): Triple | null {
  const found = /^v?(\d+)(?:\.(\d+|x|\*))?(?:\.(\d+|x|\*))?(?:[-+].*)?$/.exec(text);
  if (!found) return null;
  const part = (value: string | undefined) =>
    value === undefined || /\D/.test(value) ? null : Number(value);
  return [Number(found[1]), part(found[2]), part(found[3])];
}
