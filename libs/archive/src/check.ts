import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { PassThrough, Transform, type Readable, type Writable } from 'node:stream';
import { gunzip, type GunzipCount } from './gunzip.js';
import { archiveLimits, type ArchiveLimits } from './limits.js';
import { PathRegistry } from './paths.js';
import { TarReader, type TarEntry, type TarSink } from './tar.js';

/** What kinds of things an archive holds. */
export interface ArchiveFiles {
  files: number;
  directories: number;
  symlinks: number;
  hardlinks: number;
  /** First path segments in the order found, at most 200. */
  topLevel: string[];
  /** The ten largest files, largest first. */
  largest: { path: string; bytes: number }[];
}

/** What is known of an archive that passed. */
export interface ArchiveSummary {
  /** Of the compressed bytes, 64 lower-case hex digits. */
  sha256: string;
  /** Compressed. */
  bytes: number;
  entries: number;
  /** Of the tar inside. */
  expandedBytes: number;
  files: ArchiveFiles;
}

export interface CheckOptions {
  limits?: Partial<ArchiveLimits>;
  /** Gets every compressed byte as it arrives, at the pace it accepts them; not ended. */
  copyTo?: Writable;
}

class Counter {
  readonly found: ArchiveFiles = {
    files: 0,
    directories: 0,
    symlinks: 0,
    hardlinks: 0,
    topLevel: [],
    largest: [],
  };
  private readonly top = new Set<string>();

  add(entry: TarEntry): void {
    const plural = {
      file: 'files',
      directory: 'directories',
      symlink: 'symlinks',
      hardlink: 'hardlinks',
    } as const;
    this.found[plural[entry.type]]++;
    const first = entry.path.split('/', 1)[0]!;
    if (this.top.size < 200 && !this.top.has(first)) {
      this.top.add(first);
      this.found.topLevel.push(first);
    }
    if (entry.type !== 'file') return;
    const { largest } = this.found;
    if (largest.length === 10 && largest[9]!.bytes >= entry.size) return;
    largest.push({ path: entry.path, bytes: entry.size });
    largest.sort((a, b) => b.bytes - a.bytes);
    largest.length = Math.min(largest.length, 10);
  }
}

/**
 * Reads a whole archive once, checking everything, and tells `sink` what is in it. A promise of the sink is awaited
 * before anything further is read, so nothing is under way when this rejects.
 * @throws ArchiveRefused by the rules of reliability.md section 7; errors of the input or the sink as they are
 */
export async function readArchive(
  input: Readable | AsyncIterable<Buffer>,
  sink: TarSink,
  options: CheckOptions = {},
): Promise<ArchiveSummary> {
  const limits = archiveLimits(options.limits);
  const hash = createHash('sha256');
  const count: GunzipCount = { compressed: 0, expanded: 0 };
  const counter = new Counter();
  const reader = new TarReader(limits, new PathRegistry(limits), {
    entry: (entry) => {
      counter.add(entry);
      return sink.entry(entry);
    },
    data: (chunk) => sink.data(chunk),
    fileEnd: () => sink.fileEnd(),
  });
  const copy = options.copyTo;
  const onRaw = async (chunk: Buffer): Promise<void> => {
    hash.update(chunk);
    if (copy && !copy.write(chunk)) await once(copy, 'drain');
  };
  for await (const chunk of gunzip(input, limits, count, onRaw)) await reader.push(chunk);
  reader.end();
  return {
    sha256: hash.digest('hex'),
    bytes: count.compressed,
    entries: reader.entries,
    expandedBytes: count.expanded,
    files: counter.found,
  };
}

const nothing: TarSink = { entry: () => undefined, data: () => undefined, fileEnd: () => undefined };

/**
 * Checks an archive without writing it anywhere (except to `copyTo`). Constant memory. The input is read to its end
 * when the archive is good, and left where it is when it is refused.
 * @throws ArchiveRefused
 */
export function checkArchive(input: Readable, options: CheckOptions = {}): Promise<ArchiveSummary> {
  return readArchive(input, nothing, options);
}

/**
 * The check as a stage of a pipeline: `pipeline(request, check.stream, file)`. The stage passes every byte on and ends
 * only after the whole archive has passed; otherwise it fails with `ArchiveRefused`.
 */
export function archiveCheck(limits?: Partial<ArchiveLimits>): {
  stream: Transform;
  result: Promise<ArchiveSummary>;
} {
  const inner = new PassThrough();
  const result = checkArchive(inner, limits ? { limits } : {});
  const stream: Transform = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      if (inner.write(chunk)) {
        done(null, chunk);
        return;
      }
      const go = () => {
        inner.off('close', go);
        inner.off('drain', go);
        done(null, chunk);
      };
      inner.once('drain', go);
      inner.once('close', go);
    },
    flush(done) {
      inner.end();
      result.then(
        () => done(),
        (error: Error) => done(error),
      );
    },
    destroy(error, done) {
      inner.destroy(error ?? new Error('The upload ended early'));
      done(error);
    },
  });
  result.catch((error: Error) => stream.destroy(error));
  return { stream, result };
}
