import { lstat, readdir, readlink, realpath } from 'node:fs/promises';
import { dirname, join, posix, relative, sep } from 'node:path';
import { type IgnoreRules } from './ignore-rules.js';
import { type ArchiveLimits } from './limits.js';
import { checkCharacters, entrySegments, PathRegistry } from './paths.js';
import { ArchiveRefused, printable } from './refused.js';

/** One thing that goes into the archive. */
export interface PlannedEntry {
  /** Relative, forward slashes; folders end in `/`. */
  path: string;
  type: 'file' | 'directory' | 'symlink';
  /** Bytes of a file. */
  size: number;
  mode: 0o644 | 0o755;
  /** Of links. */
  target: string | null;
}

/** Something that was left out although no rule asked for it. */
export interface LeftOut {
  path: string;
  why: string;
}

const inside = (path: string) => path !== '..' && !path.startsWith('../') && !path.startsWith('/');

/**
 * Walks a folder and says what would be packed, names in byte order.
 * @throws ArchiveRefused when the server would refuse the archive for a path, the number of entries or the size
 */
export async function planFolder(
  dir: string,
  rules: IgnoreRules,
  limits: ArchiveLimits,
): Promise<{ entries: PlannedEntry[]; warnings: LeftOut[] }> {
  const root = await realpath(dir);
  const entries: PlannedEntry[] = [];
  const warnings: LeftOut[] = [];
  const links: { entry: PlannedEntry; full: string }[] = [];

  const walk = async (folder: string): Promise<void> => {
    const names = await readdir(join(root, folder), { encoding: 'buffer' });
    names.sort(Buffer.compare);
    for (const raw of names) {
      const name = raw.toString('utf8');
      const path = folder === '' ? name : `${folder}/${name}`;
      if (!Buffer.from(name).equals(raw)) {
        warnings.push({ path: printable(path), why: 'its name is not UTF-8' });
        continue;
      }
      const full = join(root, path);
      const info = await lstat(full);
      if (rules.out(path, info.isDirectory())) continue;
      try {
        checkCharacters(path, path);
      } catch {
        warnings.push({ path: printable(path), why: 'its name has a backslash or control character' });
        continue;
      }
      if (info.isDirectory()) {
        entries.push({ path: `${path}/`, type: 'directory', size: 0, mode: 0o755, target: null });
        await walk(path);
      } else if (info.isFile()) {
        const mode = info.mode & 0o111 ? 0o755 : 0o644;
        entries.push({ path, type: 'file', size: info.size, mode, target: null });
      } else if (info.isSymbolicLink()) {
        const entry: PlannedEntry = { path, type: 'symlink', size: 0, mode: 0o755, target: null };
        entries.push(entry);
        links.push({ entry, full });
      } else warnings.push({ path, why: 'it is neither a file nor a folder nor a link' });
    }
  };
  await walk('');

  for (const { entry, full } of links) {
    entry.target = await linkTarget(root, entry.path, full);
    if (entry.target === null)
      warnings.push({ path: entry.path, why: 'it is a link that leads out of the folder' });
  }
  const kept = entries.filter((entry) => entry.type !== 'symlink' || entry.target !== null);
  // Depth first in sorted order is not byte order of whole paths ("a-b" < "a/b"), so sort once more.
  const keys = new Map(kept.map((entry) => [entry, Buffer.from(entry.path)]));
  kept.sort((a, b) => Buffer.compare(keys.get(a)!, keys.get(b)!));
  checkPlan(kept, limits);
  return { entries: kept, warnings };
}

/**
 * A link's target, relative, not passing through other links; null when it leads out. Links that pass through links
 * are rewritten to where they really end, since an archive with such a way is refused.
 */
async function linkTarget(root: string, path: string, full: string): Promise<string | null> {
  const written = (await readlink(full)).split(sep).join('/');
  const from = posix.dirname(path);
  const lexical = written.startsWith('/')
    ? relative(root, written).split(sep).join('/')
    : posix.normalize(posix.join(from, written));
  // The real place of what the target's folder is; the last segment may itself be a link that is checked on its own.
  const real = await realpath(dirname(join(root, lexical))).catch(() => null);
  if (real === null)
    return !written.startsWith('/') && inside(lexical) && climbsInside(from, written) ? written : null;
  const there = relative(root, join(real, posix.basename(lexical)))
    .split(sep)
    .join('/');
  if (!inside(there)) return null;
  const direct = !written.startsWith('/') && there === lexical && climbsInside(from, written);
  if (direct && (await stepsAreFolders(root, from, written))) return written;
  return posix.relative(from === '.' ? '' : from, there) || '.';
}

/** False when a relative target rises above the root on its way. */
function climbsInside(from: string, target: string): boolean {
  let depth = from === '.' ? 0 : from.split('/').length;
  for (const step of target.split('/')) {
    if (step === '..') depth--;
    else if (step !== '' && step !== '.') depth++;
    if (depth < 0) return false;
  }
  return true;
}

async function stepsAreFolders(root: string, from: string, target: string): Promise<boolean> {
  let here = from;
  const steps = target.split('/');
  for (const step of steps.slice(0, -1)) {
    here = posix.join(here, step);
    const info = await lstat(join(root, here)).catch(() => null);
    if (info?.isSymbolicLink()) return false;
  }
  return true;
}

/** The server's rules on paths, number and size, before anything is sent. */
function checkPlan(entries: readonly PlannedEntry[], limits: ArchiveLimits): void {
  if (entries.length > limits.entries)
    throw new ArchiveRefused(
      'entries',
      `it would hold more than ${limits.entries} entries. Leave files out.`,
    );
  const registry = new PathRegistry(limits);
  let expanded = 1024;
  for (const entry of entries) {
    const segments = entrySegments(entry.path, limits);
    if (entry.type === 'symlink') registry.checkSymlink(segments, entry.target!, entry.path);
    registry.add(segments, entry.type, entry.path);
    expanded += 512 + Math.ceil(entry.size / 512) * 512;
  }
  if (expanded > limits.expandedBytes)
    throw new ArchiveRefused(
      'expanded_size',
      `it would hold more than ${limits.expandedBytes} bytes. Leave files out.`,
    );
}
