import { conditions, textField } from './fields.js';
import { sourcePattern } from './pattern.js';
import type { Entry } from './routing-file.js';
import type { Names } from './template.js';

/** What all rules have: the source, and the conditions. Notes what is wrong. */
export function ruleOf(entry: Entry) {
  const source = textField(entry, 'source');
  const has = conditions(entry, 'has');
  const missing = conditions(entry, 'missing');
  if (source === null) return null;
  try {
    const { pattern, names } = sourcePattern(source, entry.file.checking);
    const known: Names = { groups: names, found: has.found };
    return { rule: { line: entry.line, pattern, has: has.list, missing: missing.list }, names: known };
  } catch (error) {
    entry.field('source')!.fault((error as Error).message);
    return null;
  }
}
