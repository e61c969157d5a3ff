import type { Condition } from './compiled.js';
import { valuePattern } from './pattern.js';
import type { Entry } from './routing-file.js';

/** At most so many conditions may a rule have. */
const mostConditions = 16;
const conditionTypes = ['host', 'header', 'cookie', 'query'] as const;

/** A text field. Notes what is wrong. @returns null when it is absent or wrong */
export function textField(entry: Entry, name: string, isNeeded = true): string | null {
  const field = entry.field(name);
  if (!field) {
    if (isNeeded) entry.fault(`lacks "${name}"`);
    return null;
  }
  if (typeof field.value === 'string') return field.value;
  field.fault(`"${name}" must be a text`);
  return null;
}

/** Notes fields that mean nothing: a misspelt one must not be dropped silently. */
export function onlyFields(entry: Entry, known: readonly string[], what: string): void {
  for (const { name, line } of entry.fields() ?? [])
    if (!known.includes(name))
      entry.file.fault(line, `${what} has no field "${name}" (it has ${known.join(', ')})`);
}

/** A list of texts. */
export function textsField(entry: Entry, name: string): string[] {
  const field = entry.field(name);
  if (!field) return [];
  const items = field.items()?.map((item) => item.value);
  if (items?.every((item) => typeof item === 'string')) return items;
  field.fault(`"${name}" must be a list of texts`);
  return [];
}

/** `has` or `missing`, and the names that it finds. */
export function conditions(entry: Entry, name: 'has' | 'missing'): { list: Condition[]; found: Set<string> } {
  const list: Condition[] = [];
  const found = new Set<string>();
  const items = entry.field(name)?.items();
  if (items === undefined) return { list, found };
  if (items === null || items.length > mostConditions) {
    entry.field(name)!.fault(`"${name}" must be a list of at most ${mostConditions} conditions`);
    return { list, found };
  }
  for (const item of items) {
    const condition = conditionOf(item, found);
    if (condition) list.push(condition);
  }
  return { list, found };
}

function conditionOf(item: Entry, found: Set<string>): Condition | null {
  onlyFields(item, ['type', 'key', 'value'], 'a condition');
  const type = conditionTypes.find((one) => one === item.field('type')?.value);
  if (!type) {
    item.fault(`the type of a condition is one of ${conditionTypes.join(', ')}`);
    return null;
  }
  const key = type === 'host' ? null : textField(item, 'key');
  if (type !== 'host' && !key) return null;
  const value = item.field('value')?.value;
  if (value === undefined) {
    if (type === 'host') {
      item.fault('lacks "value"');
      return null;
    }
    found.add(key!);
    return { type, key: type === 'header' ? key!.toLowerCase() : key, value: null };
  }
  const source = patternText(value);
  if (source === null) {
    item
      .field('value')!
      .fault(
        'the value of a condition is a regular expression, or one of {"eq", "neq", "inc", "ninc", "pre", "suf", "re"}',
      );
    return null;
  }
  try {
    const { pattern, names } = valuePattern(source, item.file.checking);
    for (const one of names) found.add(one);
    if (type === 'host') found.add('host');
    return { type, key: type === 'header' ? key!.toLowerCase() : key, value: pattern };
  } catch (error) {
    item.fault((error as Error).message);
    return null;
  }
}

/** Comparisons in the form of a regular expression. */
function patternText(value: unknown): string | null {
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null || Object.keys(value).length !== 1) return null;
  const [[operator, operand]] = Object.entries(value) as [[string, unknown]];
  const one = typeof operand === 'string' || typeof operand === 'number' ? exactly(String(operand)) : null;
  const many =
    Array.isArray(operand) && operand.length > 0
      ? operand.map((item) => exactly(String(item))).join('|')
      : null;
  switch (operator) {
    case 're':
      return typeof operand === 'string' ? operand : null;
    case 'eq':
      return one;
    case 'neq':
      return one === null ? null : `(?!(?:${one})$).*`;
    case 'inc':
      return many === null ? null : `(?:${many})`;
    case 'ninc':
      return many === null ? null : `(?!(?:${many})$).*`;
    case 'pre':
      return one === null ? null : `${one}.*`;
    case 'suf':
      return one === null ? null : `.*${one}`;
    default:
      return null;
  }
}

const exactly = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
