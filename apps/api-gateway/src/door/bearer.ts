import type { IncomingMessage } from 'node:http';

const maxLength = 512;

/**
 * The bearer token of a request, or null: the scheme's case does not matter, a second Authorization header does
 * (Node keeps the first silently, another proxy might keep the last).
 */
export function bearerOf(request: IncomingMessage): string | null {
  const header = request.headers.authorization;
  if (!header || header.length > maxLength || count(request.rawHeaders, 'authorization') > 1) return null;
  if (header.slice(0, 7).toLowerCase() !== 'bearer ') return null;
  const token = header.slice(7).trim();
  return /^[\x21-\x7e]+$/.test(token) ? token : null;
}

/** How often a header was sent. */
export function count(rawHeaders: readonly string[], name: string): number {
  let found = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index]!.length === name.length && rawHeaders[index]!.toLowerCase() === name) found += 1;
  }
  return found;
}
