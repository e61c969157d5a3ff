import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, realpath, stat } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { contentType, isCompressible } from './content.js';
import { Site, type SiteFile } from './site.js';

/** Bounds of an index: links can make a small archive look endless. */
const MAX_ENTRIES = 100_000;
const MAX_DEPTH = 256;

/**
 * Lists and hashes the files below a folder. Symbolic links count when they end inside the folder; those that leave it,
 * hang or run in circles are left out. Devices, sockets and pipes are left out.
 * @throws when there are more than 100,000 entries
 */
export async function indexSite(sha256: string, root: string): Promise<Site> {
  const base = await realpath(root);
  const files = new Map<string, SiteFile>();
  /** Content hash by real path, so that ten links to one file are read once. */
  const hashes = new Map<string, string>();
  let entries = 0;

  const inside = (path: string): boolean => path === base || path.startsWith(base + sep);

  const walk = async (real: string, prefix: string, above: readonly string[]): Promise<void> => {
    if (above.includes(real) || above.length > MAX_DEPTH) return;
    const chain = [...above, real];
    for (const entry of await readdir(real, { withFileTypes: true })) {
      if (++entries > MAX_ENTRIES) throw new Error(`a site may have at most ${MAX_ENTRIES} entries`);
      // Dotfiles are never served, so they need no place in the index.
      if (entry.name.startsWith('.') && !(prefix === '' && entry.name === '.well-known')) continue;
      let path: string;
      try {
        path = await realpath(join(real, entry.name));
      } catch {
        continue;
      }
      if (!inside(path) || leadsToDotfile(path.slice(base.length))) continue;
      const info = await stat(path);
      const key = prefix + entry.name;
      if (info.isDirectory()) {
        await walk(path, `${key}/`, chain);
      } else if (info.isFile()) {
        let hash = hashes.get(path);
        if (hash === undefined) {
          hash = await hashFile(path);
          hashes.set(path, hash);
        }
        const type = contentType(entry.name);
        const compressible = isCompressible(type, info.size);
        files.set(key, { file: path, size: info.size, hash, type, compressible, encodings: {} });
      }
    }
  };
  await walk(base, '', []);
  return new Site(sha256, files);
}

/** A link with a harmless name must not publish `.env` either. */
function leadsToDotfile(relative: string): boolean {
  const names = relative.split(sep).filter((name) => name !== '');
  return names.some((name, i) => name.startsWith('.') && !(i === 0 && name === '.well-known'));
}

async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('base64url').slice(0, 27);
}
