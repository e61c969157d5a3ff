import { type Site, type SiteFile } from './site.js';

export type Resolved =
  | { kind: 'file'; path: string; file: SiteFile; status: 200 | 404; byAccept: boolean }
  /** Path of the canonical address, encoded, without query. */
  | { kind: 'redirect'; path: string }
  | { kind: 'missing'; byAccept: boolean }
  | { kind: 'malformed' };

/**
 * The names of a URL path: decoded once, empty and `.` names dropped, `..` resolved.
 * @returns null when an escape is malformed, a name holds NUL, or `..` climbs above the root
 */
export function pathNames(path: string): { names: string[]; folder: boolean } | null {
  const names: string[] = [];
  let folder = true;
  for (const part of path.split('/').slice(1)) {
    let name: string;
    try {
      name = decodeURIComponent(part);
    } catch {
      return null;
    }
    if (name.includes('\0')) return null;
    folder = name === '' || name === '.' || name === '..';
    if (name === '' || name === '.') continue;
    if (name === '..') {
      if (names.pop() === undefined) return null;
    } else {
      names.push(name);
    }
  }
  return { names, folder };
}

/** Dotfiles are never served, except what is meant for the public by RFC 8615. */
function isHidden(names: readonly string[]): boolean {
  return names.some((name, i) => name.startsWith('.') && !(i === 0 && name === '.well-known'));
}

const encode = (names: readonly string[]): string => '/' + names.map(encodeURIComponent).join('/');

/**
 * Which file of a site answers a path. In order: the file itself, `about` → `about.html`, a folder's `index.html` (with
 * 308 to the address with a slash), then `404.html` with status 404, or, where a site has none, `/index.html` with 200 for
 * page requests of extension-less paths (single-page apps).
 * @param path encoded, without query, starting with `/`
 */
export function resolve(site: Site, path: string, wantsHtml: boolean): Resolved {
  const parsed = pathNames(path);
  if (!parsed) return { kind: 'malformed' };
  const { names, folder } = parsed;
  // An encoded slash or a backslash stays inside its name and so matches no file.
  if (isHidden(names)) return missing(site, names, wantsHtml);
  const key = names.some((name) => name.includes('/')) ? null : names.join('/');
  if (key === null) return missing(site, names, wantsHtml);

  const found = (at: string): Resolved | null => {
    const file = site.files.get(at);
    return file ? { kind: 'file', path: at, file, status: 200, byAccept: false } : null;
  };
  const index = key === '' ? 'index.html' : `${key}/index.html`;
  if (folder) return found(index) ?? missing(site, names, wantsHtml);
  const direct = found(key) ?? (hasExtension(names) ? null : found(`${key}.html`));
  if (direct) return direct;
  if (site.files.has(index)) return { kind: 'redirect', path: `${encode(names)}/` };
  return missing(site, names, wantsHtml);
}

/** Whether a file (or a folder's address without its slash) answers a path, and not the page for what is missing. */
export function isThere(site: Site, path: string): boolean {
  const { kind, ...found } = resolve(site, path, false);
  return kind === 'redirect' || kind === 'malformed' || ('status' in found && found.status === 200);
}

function missing(site: Site, names: readonly string[], wantsHtml: boolean): Resolved {
  const own = site.files.get('404.html');
  if (own) return { kind: 'file', path: '404.html', file: own, status: 404, byAccept: false };
  const page = site.files.get('index.html');
  const eligible = page !== undefined && !hasExtension(names) && !isHidden(names);
  if (page && eligible && wantsHtml) {
    return { kind: 'file', path: 'index.html', file: page, status: 200, byAccept: true };
  }
  return { kind: 'missing', byAccept: eligible };
}

function hasExtension(names: readonly string[]): boolean {
  return /.\.[^.]+$/.test(names.at(-1) ?? '');
}
