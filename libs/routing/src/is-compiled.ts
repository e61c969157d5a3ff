import type { CompiledRouting } from './compiled.js';

const lists = ['redirects', 'headers', 'rewrites', 'cors'] as const;

/**
 * Whether a value is what `compileRouting` makes: it came over a wire, and a rule that cannot be applied must be found before
 * it is, not by a visitor. Every pattern is looked at, none is compiled.
 */
export function isCompiledRouting(value: unknown): value is CompiledRouting {
  if (!isRecord(value) || value['format'] !== 1) return false;
  return lists.every((name) => Array.isArray(value[name]) && value[name].every(isRule));
}

function isRule(rule: unknown): boolean {
  if (!isRecord(rule) || !isPattern(rule['pattern'])) return false;
  const { has, missing } = rule;
  return [has, missing].every(
    (list) =>
      Array.isArray(list) &&
      list.every((one) => isRecord(one) && (one['value'] === null || isPattern(one['value']))),
  );
}

const isPattern = (pattern: unknown): boolean =>
  isRecord(pattern) &&
  typeof pattern['regex'] === 'string' &&
  typeof pattern['prefix'] === 'string' &&
  (pattern['engine'] === 'native' || pattern['engine'] === 'linear');

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
