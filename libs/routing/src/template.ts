import { compile, parse } from 'path-to-regexp';
import type { Destination, Template } from './compiled.js';

/** What a destination may name: groups of the source by their number, and what conditions find. */
export interface Names {
  groups: readonly (string | null)[];
  found: ReadonlySet<string>;
}

// A character that no URL and no header value may hold marks a place while the library writes the text around it.
const mark = '\u0001';

/**
 * A text with `:name` places.
 * @param isStrict refuses names that nothing is known of; otherwise a colon may also just be one
 * @throws Error with a sentence for the author
 */
export function template(text: string, names: Names, isStrict: boolean): Template {
  if (text === '') return [];
  if (text.includes(mark)) throw new Error('a control character stands in it');
  if (!text.includes(':')) return [text];
  const values = placesOf(names);
  const known = Object.keys(values).sort((a, b) => b.length - a.length);
  const direct = isStrict ? compiled(text, values) : null;
  if (direct !== null) return pieces(direct);
  // What the library does not take as a pattern (a port, a time of day): only the names themselves are replaced.
  let out = text;
  for (const name of known)
    out = out.replace(new RegExp(`:${escaped(name)}(?!\\w)[*+?]?`, 'g'), () => values[name]!);
  return pieces(out);
}

/** Names that a text asks for, when it can be read as a pattern. */
export function namesIn(text: string): string[] {
  try {
    return parse(text).flatMap((token) =>
      typeof token === 'object' && typeof token.name === 'string' ? [token.name] : [],
    );
  } catch {
    return [];
  }
}

function compiled(text: string, values: Record<string, string>): string | null {
  let make: ReturnType<typeof compile>;
  try {
    make = compile(text, { validate: false });
  } catch {
    return null;
  }
  // `:8080` is a port.
  const missing = namesIn(text).find((name) => !Object.hasOwn(values, name) && !/^\d+$/.test(name));
  if (missing !== undefined) throw new Error(`":${missing}" stands in neither the source nor a condition`);
  try {
    return make(values);
  } catch {
    return null;
  }
}

/** A mark for each name; of two groups with one name the last counts. */
function placesOf({ groups, found }: Names): Record<string, string> {
  const values: Record<string, string> = {};
  groups.forEach((name, index) => {
    values[name ?? String(index)] = `${mark}${index + 1}${mark}`;
  });
  for (const name of found) values[name] = `${mark}${name}${mark}`;
  return values;
}

function pieces(text: string): Template {
  return text.split(mark).flatMap((piece, index): (string | number | { found: string })[] => {
    if (index % 2 === 0) return piece === '' ? [] : [piece];
    return [/^\d+$/.test(piece) ? Number(piece) : { found: piece }];
  });
}

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/**
 * A destination: a path of this site, or an address elsewhere.
 * @param fill names that the path does not use go into the query, as rewrites have it
 * @throws Error with a sentence for the author
 */
export function destination(text: string, names: Names, fill: boolean): Destination {
  const found = /^(?:(https?:\/\/[^/?#]+)|(?=\/))([^?#]*)(?:\?([^#]*))?(#.*)?$/s.exec(text);
  if (!found) throw new Error(`"${text}" must be a path that begins with /, or an address with http(s)://`);
  const [, origin, path = '', query = '', hash = ''] = found;
  // Browsers read `//host` and `/\host` as another host.
  if (origin === undefined && /^\/[/\\]/.test(path)) throw new Error(`"${text}" would lead to another host`);
  const [scheme, host] = origin === undefined ? [] : origin.split('://');
  const used = new Set([path, hash, host ?? ''].flatMap(namesIn));
  const pairs = [...new URLSearchParams(query)].map(([name, value]) => ({
    name,
    value: template(value, names, true),
  }));
  const all = [...names.groups.filter((name) => name !== null), ...names.found];
  if (fill && !all.some((name) => used.has(name))) {
    for (const name of new Set(all)) {
      if (pairs.some((pair) => pair.name === name)) continue;
      const last = names.groups.lastIndexOf(name);
      pairs.push({ name, value: [names.found.has(name) ? { found: name } : last + 1] });
    }
  }
  return {
    origin: host === undefined ? null : [`${scheme}://`, ...template(host, names, true)],
    path: encoded(template(path, names, true)),
    query: pairs,
    hash: encoded(template(hash, names, true)),
  };
}

/** As a header or a request line can hold it: other letters, spaces and line ends by their escapes. What is escaped stays. */
const encoded = (parts: Template): Template =>
  parts.map((part) =>
    typeof part === 'string'
      ? part.replace(/\p{Surrogate}/gu, '\ufffd').replace(/[^\x21-\x7e]+/g, encodeURIComponent)
      : part,
  );
