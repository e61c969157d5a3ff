import { RE2JS } from 're2js';
import type { CompiledPattern } from './compiled.js';

/** What a pattern found in a text: its groups by number (the first is 1) and by name. */
export interface Found {
  groups: readonly (string | undefined)[];
  named: Readonly<Record<string, string | undefined>>;
}

export type Match = (text: string) => Found | null;

/** Rules cannot be applied to a request: that would hold up everybody else on the same edge. */
export class RulesTooSlow extends Error {}

/** Steps of one match, which the text's characters times the pattern's size bound: a fraction of a second. */
const mostSteps = 4_000_000;

const nothing = {};

/** The matcher of a compiled pattern; made once for each. */
export function matcher({ regex, engine }: CompiledPattern): Match {
  if (engine === 'native') {
    const compiled = new RegExp(regex);
    return (text) => {
      const found = compiled.exec(text);
      return found && { groups: found, named: found.groups ?? nothing };
    };
  }
  const compiled = RE2JS.compile(regex);
  const names = Object.keys(compiled.namedGroups());
  const size = compiled.programSize();
  return (text) => {
    if (text.length * size > mostSteps)
      throw new RulesTooSlow(`a pattern of ${size} steps against ${text.length} characters`);
    const found = compiled.matcher(text);
    if (!found.find()) return null;
    const groups: (string | undefined)[] = [];
    for (let index = 0; index <= found.groupCount(); index += 1) groups.push(found.group(index) ?? undefined);
    return { groups, named: Object.fromEntries(names.map((name) => [name, found.group(name) ?? undefined])) };
  };
}
