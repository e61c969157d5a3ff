import { createHash } from 'node:crypto';
import { type ArchiveLimits } from './limits.js';
import { ArchiveRefused, printable } from './refused.js';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Decodes a name from an archive's header.
 * @throws ArchiveRefused `path_encoding` when it is not UTF-8
 */
export function decodeName(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    const shown = printable(Buffer.from(bytes).toString('latin1'));
    throw new ArchiveRefused(
      'path_encoding',
      'has a name that is not UTF-8. Rename the file and pack again.',
      shown,
    );
  }
}

/** Rules that hold for names of entries and for targets of links alike. */
export function checkCharacters(path: string, entry: string): void {
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f-\u009f\\]/.test(path))
    throw new ArchiveRefused(
      'path_control',
      'has a backslash, NUL or control character in its path. Rename the file and pack again.',
      printable(entry),
    );
}

/** True of `/x`, `C:x` and the like. */
export function isAbsolute(path: string): boolean {
  return path.startsWith('/') || /^[A-Za-z]:/.test(path);
}

/**
 * The segments of an entry's path, `.` and empty ones dropped; an empty list is the root itself (`./`).
 * @throws ArchiveRefused path_* of reliability.md section 7
 */
export function entrySegments(path: string, limits: ArchiveLimits): string[] {
  const shown = printable(path);
  if (path === '') throw new ArchiveRefused('path_empty', 'an entry has no name. Pack the folder again.');
  checkCharacters(path, path);
  if (isAbsolute(path))
    throw new ArchiveRefused(
      'path_absolute',
      'is an absolute path. Pack with paths relative to the folder.',
      shown,
    );
  if (Buffer.byteLength(path) > limits.pathBytes)
    throw new ArchiveRefused(
      'path_length',
      `is longer than ${limits.pathBytes} bytes. Shorten the path.`,
      shown,
    );
  const segments = path.split('/').filter((segment) => segment !== '' && segment !== '.');
  if (segments.includes('..'))
    throw new ArchiveRefused('path_parent', 'has a ".." in its path. Pack from inside the folder.', shown);
  if (segments.length > limits.pathLevels)
    throw new ArchiveRefused(
      'path_depth',
      `lies deeper than ${limits.pathLevels} folders. Flatten the tree.`,
      shown,
    );
  return segments;
}

/** Names that fall together on a disk that ignores case (Windows, macOS) or Unicode form (macOS) get one key. */
function fold(segment: string): string {
  return segment.normalize('NFD').toUpperCase().toLowerCase().normalize('NFD');
}

/** 16 bytes of SHA-256: memory stays bounded however long the paths are. */
function digest(text: string): string {
  return createHash('sha256').update(text).digest('binary').slice(0, 16);
}

export type NodeKind = 'file' | 'directory' | 'symlink';

interface Node {
  kind: NodeKind;
  /** False: only implied by a longer path, so the directory's own entry may still come. */
  explicit: boolean;
  exact: string;
}

/**
 * All paths of one archive: finds doubles, collisions, files used as folders and every way through a symbolic link,
 * in whatever order the entries come. Holds digests only; at most `limits.entries` entries, as many implied
 * directories and as many link passages again.
 */
export class PathRegistry {
  private readonly nodes = new Map<string, Node>();
  /** Places that some link's target passes through, which therefore may not be links themselves. */
  private readonly passages = new Set<string>();
  private implied = 0;

  constructor(private readonly limits: ArchiveLimits) {}

  private key(segments: readonly string[]): string {
    return digest((this.limits.foldCollisions ? segments.map(fold) : segments).join('/'));
  }

  /** Adds an entry. `path` is for the message. */
  add(segments: readonly string[], kind: NodeKind, path: string): void {
    for (let depth = 1; depth < segments.length; depth++) this.parent(segments.slice(0, depth), path);
    const key = this.key(segments);
    const exact = digest(segments.join('/'));
    const shown = printable(path);
    const there = this.nodes.get(key);
    if (there && there.exact !== exact)
      throw new ArchiveRefused(
        'path_collision',
        'differs from another entry only by upper and lower case or Unicode form. Rename one of them.',
        shown,
      );
    if (there && (there.explicit || kind !== 'directory'))
      throw new ArchiveRefused('duplicate_path', 'is in the archive twice. Pack the folder again.', shown);
    if (kind === 'symlink' && this.passages.has(key))
      throw new ArchiveRefused('link_through_link', 'is a link that another link passes through.', shown);
    this.nodes.set(key, { kind, explicit: true, exact });
  }

  private parent(segments: readonly string[], path: string): void {
    const key = this.key(segments);
    const exact = digest(segments.join('/'));
    const there = this.nodes.get(key);
    const shown = printable(path);
    if (!there) {
      if (++this.implied > this.limits.entries)
        throw new ArchiveRefused('entries', `the paths make more than ${this.limits.entries} folders.`);
      this.nodes.set(key, { kind: 'directory', explicit: false, exact });
      return;
    }
    if (there.kind === 'symlink')
      throw new ArchiveRefused('path_through_link', 'lies behind a symbolic link of the archive.', shown);
    if (there.kind === 'file')
      throw new ArchiveRefused(
        'path_through_file',
        'lies behind an entry that is a file, not a folder.',
        shown,
      );
    if (there.exact !== exact)
      throw new ArchiveRefused(
        'path_collision',
        'lies in a folder that differs from another only by upper and lower case or Unicode form. Rename one of them.',
        shown,
      );
  }

  /**
   * Checks a symbolic link's target: relative, never above the root on the way, never through another link. A link at
   * the very end of the way is fine, since it is checked itself.
   */
  checkSymlink(segments: readonly string[], target: string, path: string): void {
    const shown = printable(path);
    if (target === '') throw new ArchiveRefused('link_target', 'is a link to nothing. Remove it.', shown);
    checkCharacters(target, path);
    if (Buffer.byteLength(target) > this.limits.pathBytes)
      throw new ArchiveRefused(
        'path_length',
        `has a link target longer than ${this.limits.pathBytes} bytes.`,
        shown,
      );
    const outside = () =>
      new ArchiveRefused('link_outside', 'is a link that leads out of the archive. Remove it.', shown);
    if (isAbsolute(target)) throw outside();
    const here = segments.slice(0, -1);
    const steps = target.split('/').filter((step) => step !== '' && step !== '.');
    if (steps.length > 2 * this.limits.pathLevels)
      throw new ArchiveRefused('path_depth', 'has a link target with too many segments.', shown);
    steps.forEach((step, index) => {
      if (step === '..') {
        if (here.length === 0) throw outside();
        here.pop();
        return;
      }
      here.push(step);
      if (index < steps.length - 1) this.pass(here, shown);
    });
  }

  private pass(segments: readonly string[], shown: string): void {
    const key = this.key(segments);
    if (this.nodes.get(key)?.kind === 'symlink')
      throw new ArchiveRefused(
        'link_through_link',
        'is a link whose target passes through another link.',
        shown,
      );
    this.passages.add(key);
    if (this.passages.size > this.limits.entries)
      throw new ArchiveRefused('entries', `the links pass through more than ${this.limits.entries} folders.`);
  }

  /** Checks a hard link: its target is a file that came earlier, under exactly this path. */
  checkHardlink(target: string, path: string): string[] {
    const shown = printable(path);
    checkCharacters(target, path);
    if (target === '' || isAbsolute(target) || target.split('/').includes('..'))
      throw new ArchiveRefused(
        'link_outside',
        'is a hard link that leads out of the archive. Remove it.',
        shown,
      );
    const segments = entrySegments(target, this.limits);
    for (let depth = 1; depth < segments.length; depth++)
      if (this.nodes.get(this.key(segments.slice(0, depth)))?.kind === 'symlink')
        throw new ArchiveRefused(
          'link_through_link',
          'is a hard link that passes through a symbolic link.',
          shown,
        );
    const there = this.nodes.get(this.key(segments));
    if (there?.kind === 'symlink')
      throw new ArchiveRefused('link_through_link', 'is a hard link to a symbolic link. Remove it.', shown);
    if (there?.kind !== 'file' || there.exact !== digest(segments.join('/')))
      throw new ArchiveRefused(
        'link_target',
        'is a hard link to a file that does not come before it.',
        shown,
      );
    return segments;
  }
}
