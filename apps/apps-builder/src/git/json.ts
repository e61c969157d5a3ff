/** Answers of strangers are read field by field; what is not there, or is something else, is null. */

/** The value at a path, undefined when the way ends. */
export function at(value: unknown, ...path: readonly string[]): unknown {
  let here = value;
  for (const name of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, name)) return undefined;
    here = (here as Record<string, unknown>)[name];
  }
  return here;
}

/** Without what PostgreSQL cannot keep: NUL, and halves of surrogate pairs. */
export const storable = (text: string): string => text.replace(/\0|\p{Surrogate}/gu, '\ufffd');

/** A text at a path, storable; null when it is none or empty. */
export function textAt(value: unknown, ...path: readonly string[]): string | null {
  const found = at(value, ...path);
  return typeof found === 'string' && found !== '' ? storable(found) : null;
}

/** A whole number at a path. */
export function numberAt(value: unknown, ...path: readonly string[]): number | null {
  const found = at(value, ...path);
  return typeof found === 'number' && Number.isSafeInteger(found) ? found : null;
}

/** An id, which some hosts write as a number and others as a text. */
export function idAt(value: unknown, ...path: readonly string[]): string | null {
  const number = numberAt(value, ...path);
  return number === null ? textAt(value, ...path) : String(number);
}

/** The items at a path; none when it is no list. */
export function listAt(value: unknown, ...path: readonly string[]): unknown[] {
  const found = path.length === 0 ? value : at(value, ...path);
  return Array.isArray(found) ? found : [];
}
