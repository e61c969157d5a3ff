import { lookup } from 'mrmime';

export type Encoding = 'br' | 'gzip';

/** From this size on compressed forms are made; below, the headers outweigh the gain. */
export const MIN_COMPRESS_BYTES = 1024;
/** Above this size files are sent as they are: compressing them would hold too much memory and time. */
export const MAX_COMPRESS_BYTES = 16 * 1024 * 1024;

const TEXTUAL = new Set([
  'application/json',
  'application/ld+json',
  'application/manifest+json',
  'application/geo+json',
  'application/javascript',
  'application/xml',
  'application/rss+xml',
  'application/atom+xml',
  'application/xhtml+xml',
  'image/svg+xml',
]);
const COMPRESSIBLE_BINARY = new Set([
  'application/wasm',
  'application/vnd.ms-fontobject',
  'font/ttf',
  'font/otf',
  'image/bmp',
  'image/x-icon',
  'image/vnd.microsoft.icon',
]);

/** @param type a media type without parameters, in lower case */
export const isTextType = (type: string): boolean => type.startsWith('text/') || TEXTUAL.has(type);

/** Content-Type by file name, with charset where the type is text; unknown names are bytes. */
export function contentType(name: string): string {
  const type = lookup(name) ?? 'application/octet-stream';
  return isTextType(type) ? `${type}; charset=utf-8` : type;
}

/** Whether a file of this type and size (bytes) gets compressed forms. */
export function isCompressible(type: string, size: number): boolean {
  if (size < MIN_COMPRESS_BYTES || size > MAX_COMPRESS_BYTES) return false;
  const bare = type.split(';', 1)[0]!;
  return isTextType(bare) || COMPRESSIBLE_BINARY.has(bare);
}

/** Folders whose names the build tools make unique by content. */
const HASHED_FOLDERS = ['_next/static/', '_app/immutable/'];

/**
 * True for a file whose name contains the hash of its content, so that it never changes under that name: `main.3f4e5d6c.js`,
 * `index-BxYz12Ab.css`. Careful, for a wrong "yes" would pin an old file in browsers for a year: hex needs a letter and a
 * digit, mixed alphabets need a digit and both cases; dates and words are no hashes, and pages never are.
 */
export function isImmutableName(path: string): boolean {
  if (/\.html?$/i.test(path)) return false;
  if (HASHED_FOLDERS.some((folder) => path.startsWith(folder))) return true;
  const name = path.slice(path.lastIndexOf('/') + 1);
  const match = /[.-]([A-Za-z0-9_-]{8,64})\.[A-Za-z0-9]+(?:\.map)?$/.exec(name);
  if (!match) return false;
  // A base64url hash may contain the separator itself, so the longest and the shortest reading are both looked at.
  const long = match[1]!;
  return isHash(long) || long.split('-').some(isHash) || isHash(long.slice(-8));
}

function isHash(text: string): boolean {
  if (text.length < 8) return false;
  if (/^[0-9a-f]+$/.test(text)) return /[0-9]/.test(text) && /[a-f]/.test(text);
  return /^[A-Za-z0-9_-]+$/.test(text) && /[0-9]/.test(text) && /[a-z]/.test(text) && /[A-Z]/.test(text);
}

/** Cache-Control of a file by its path inside the site. */
export function cacheControl(path: string): string {
  return isImmutableName(path) ? 'public, max-age=31536000, immutable' : 'public, max-age=0, must-revalidate';
}
