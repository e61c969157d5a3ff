import type { CompiledRouting, HeaderRule, RedirectRule, RewriteRule } from './compiled.js';
import { corsRule } from './cors-rule.js';
import { onlyFields, textField } from './fields.js';
import { headerFault } from './header-text.js';
import { longestPattern, unnamed } from './pattern.js';
import { RoutingFileError, type Problem } from './problem.js';
import { type Entry, RoutingFile } from './routing-file.js';
import { ruleOf } from './rule.js';
import { slashRules } from './slashes.js';
import { destination, template } from './template.js';

/** At most so many rules may a list have. */
const mostRules = 2_048;
const redirectStatuses = [301, 302, 303, 307, 308];

/** Names that a routing file may have, the one that counts first. */
export const routingFileNames = ['nebo.json', 'vercel.json'] as const;
export type RoutingFileName = (typeof routingFileNames)[number];

/** What the file of the other product family also holds; it concerns building, not routing, and is said to be left out. */
const aboutOtherThings = ['$schema', 'version', 'name', 'public'];

/**
 * Compiles a routing file.
 * @throws RoutingFileError with every fault and its line: a file is used whole or not at all
 */
export function compileRouting(
  name: RoutingFileName,
  text: string,
): { routing: CompiledRouting; warnings: Problem[] } {
  const file = new RoutingFile(name, text);
  const routing: CompiledRouting = { format: 1, redirects: [], headers: [], rewrites: [], cors: [] };
  try {
    const root = file.root();
    if (root) readRoot(root, routing, name === 'nebo.json');
  } catch (error) {
    // What is left of the stack says nothing of the file but this.
    if (!(error instanceof RangeError)) throw error;
    file.fault(1, 'is nested too deeply');
  }
  if (file.faults.length > 0) throw new RoutingFileError(file.faults);
  return { routing, warnings: file.warnings };
}

function readRoot(root: Entry, routing: CompiledRouting, hasExtras: boolean): void {
  const fields = root.fields();
  if (!fields) return root.fault('must be an object');
  const lists = {
    redirects: (entry: Entry) => routing.redirects.push(...made(redirectRule(entry))),
    headers: (entry: Entry) => routing.headers.push(...made(headerRule(entry))),
    rewrites: (entry: Entry) => routing.rewrites.push(...made(rewriteRule(entry))),
    ...(hasExtras ? { cors: (entry: Entry) => routing.cors.push(...made(corsRule(entry))) } : {}),
  };
  routing.redirects.push(...slashRules(root));
  for (const { name, line, entry } of fields) {
    const add = (lists as Record<string, ((entry: Entry) => void) | undefined>)[name];
    if (add) eachRule(entry, name, add);
    else if (name === 'routes')
      root.file.fault(
        line,
        '"routes" is the older form of these rules; write redirects, headers and rewrites',
      );
    else if (!['cleanUrls', 'trailingSlash', ...aboutOtherThings].includes(name))
      root.file.warn(line, `"${name}" is not about routing and has no effect here`);
  }
}

const made = <T>(rule: T | null): T[] => (rule === null ? [] : [rule]);

function eachRule(entry: Entry, name: string, add: (entry: Entry) => void): void {
  const items = entry.items();
  if (!items) return entry.fault(`"${name}" must be a list`);
  if (items.length > mostRules)
    return entry.fault(`"${name}" may have ${mostRules} rules, not ${items.length}`);
  for (const item of items) {
    if (!item.fields()) item.fault(`each of "${name}" must be an object`);
    else add(item);
  }
}

const ruleFields = ['source', 'has', 'missing'];

function redirectRule(entry: Entry): RedirectRule | null {
  onlyFields(entry, [...ruleFields, 'destination', 'permanent', 'statusCode'], 'a redirect');
  const read = ruleOf(entry);
  const text = textField(entry, 'destination');
  const status = statusOf(entry);
  if (!read || text === null || status === null) return null;
  if (entry.field('source')!.value === text && read.rule.has.length + read.rule.missing.length === 0) {
    entry.fault('leads to itself');
    return null;
  }
  return within(entry, () => ({ ...read.rule, status, to: destination(text, read.names, false) }));
}

function statusOf(entry: Entry): number | null {
  const permanent = entry.field('permanent');
  const code = entry.field('statusCode');
  if (permanent && code) {
    entry.fault('has both "permanent" and "statusCode"');
    return null;
  }
  if (permanent) {
    if (typeof permanent.value === 'boolean') return permanent.value ? 308 : 307;
    permanent.fault('"permanent" must be true or false');
    return null;
  }
  if (!code) return 308;
  if (redirectStatuses.includes(code.value as number)) return code.value as number;
  code.fault(`"statusCode" is one of ${redirectStatuses.join(', ')}`);
  return null;
}

function rewriteRule(entry: Entry): RewriteRule | null {
  onlyFields(entry, [...ruleFields, 'destination'], 'a rewrite');
  const read = ruleOf(entry);
  const text = textField(entry, 'destination');
  if (!read || text === null) return null;
  return within(entry, () => ({ ...read.rule, to: destination(text, read.names, true) }));
}

function headerRule(entry: Entry): HeaderRule | null {
  onlyFields(entry, [...ruleFields, 'headers'], 'a header rule');
  const read = ruleOf(entry);
  const items = entry.field('headers')?.items();
  if (!items) entry.fault('lacks "headers", a list of {"key", "value"}');
  if (!read || !items) return null;
  const set: HeaderRule['set'] = [];
  // A colon in a value is mostly just that; names are only looked for where the source has some.
  const isNamed = read.names.groups.some((name) => name !== unnamed) || read.names.found.size > 0;
  for (const item of items) {
    onlyFields(item, ['key', 'value'], 'a header');
    const key = textField(item, 'key');
    const value = textField(item, 'value');
    if (key === null || value === null) continue;
    const fault = headerFault(key, value);
    if (fault !== null) item.fault(fault);
    else if (value.length > longestPattern) item.fault(`a value may have ${longestPattern} characters`);
    else
      set.push({
        name: isNamed ? template(key, read.names, false) : [key],
        value: isNamed ? template(value, read.names, false) : [value],
      });
  }
  return { ...read.rule, set };
}

function within<T>(entry: Entry, work: () => T): T | null {
  try {
    return work();
  } catch (error) {
    entry.field('destination')!.fault((error as Error).message);
    return null;
  }
}
