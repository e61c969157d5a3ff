import { notFound } from './errors.js';

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** An id in its canonical form, or null when it is none. */
export function idOrNull(text: string): string | null {
  const lower = text.toLowerCase();
  return uuid.test(lower) ? lower : null;
}

/**
 * An id of a path in its canonical form: upper case is accepted (4-client-behaviours.md, 1).
 * @throws ApiError 404 for what cannot be an id: nothing has it
 */
export function pathId(text: string): string {
  const id = idOrNull(text);
  if (id === null) throw notFound();
  return id;
}
