import { RE2JS } from 're2js';
import type { CompiledPattern } from './compiled.js';

/** What a pattern found in a text: its groups by number (the first is 1) and by name. */
export interface Found {
  groups: readonly (string | undefined)[];
  named: Readonly<Record<string, string | undefined>>;
}

export type Match = (text: string) => Found | null;

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
  return (text) => {
    const found = compiled.matcher(text);
    if (!found.find()) return null;
    const groups: (string | undefined)[] = [];
    for (let index = 0; index <= found.groupCount(); index += 1) groups.push(found.group(index) ?? undefined);
    return { groups, named: Object.fromEntries(names.map((name) => [name, found.group(name) ?? undefined])) };
  };
}
