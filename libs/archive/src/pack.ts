import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { crc32, createDeflateRaw } from 'node:zlib';
import { keepAll, sourceRules } from './ignore-rules.js';
import { archiveLimits, type ArchiveLimits } from './limits.js';
import { planFolder, type LeftOut, type PlannedEntry } from './plan.js';
import { padding, tarHeader } from './tar-header.js';

export interface PackOptions {
  /** `source` (default): the rules of a source folder. `none`: keep everything, for artifacts. */
  ignoreRules?: 'source' | 'none';
  /** False: a `.gitignore` does not count (`--no-gitignore`). Default true. */
  gitignore?: boolean;
  /** What stays out beside that (relative, forward slashes); of a folder: with all that is in it. */
  leaveOut?: (path: string, directory: boolean) => boolean;
  limits?: Partial<ArchiveLimits>;
  /** How hard to compress, 1 (fast) to 9; default 6. */
  level?: number;
}

/** What is going to be packed. */
export interface PackManifest {
  entries: PlannedEntry[];
  /** The ignore file that ruled. */
  ruledBy: '.neboignore' | '.gitignore' | null;
  files: number;
  /** Sum of all files, uncompressed. */
  bytes: number;
  /** The ten largest files. */
  largest: { path: string; bytes: number }[];
  /** Left out although no rule asked for it: links that lead out, sockets, unusable names. */
  warnings: LeftOut[];
}

export interface PackedFolder {
  manifest: PackManifest;
  /** The gzip-compressed tar; nothing is read before it is. One use. */
  stream: Readable;
  /** Settled when `stream` has been read to its end. */
  digest: Promise<{ sha256: string; bytes: number }>;
}

/**
 * Packs a folder so that equal folders give equal bytes: names in byte order, times and owners 0, modes 644/755, gzip
 * header with time 0 and OS byte 255 (panel-and-cli.md section 8 "Archive"). The plan is checked against the server's
 * limits before this resolves; a file that changes its size while it is read fails the stream.
 * @throws ArchiveRefused when the archive would be refused; file system errors
 */
export async function packFolder(dir: string, options: PackOptions = {}): Promise<PackedFolder> {
  const limits = archiveLimits(options.limits);
  const { leaveOut } = options;
  const rules = options.ignoreRules === 'none' ? keepAll : await sourceRules(dir, options.gitignore ?? true);
  const out = (path: string, directory: boolean) =>
    rules.out(path, directory) || (leaveOut?.(path, directory) ?? false);
  const { entries, warnings } = await planFolder(dir, { ...rules, out }, limits);
  const files = entries.filter((entry) => entry.type === 'file');
  const largest = [...files].sort((a, b) => b.size - a.size).slice(0, 10);
  const manifest: PackManifest = {
    entries,
    ruledBy: rules.ruledBy,
    files: files.length,
    bytes: files.reduce((sum, entry) => sum + entry.size, 0),
    largest: largest.map((entry) => ({ path: entry.path, bytes: entry.size })),
    warnings,
  };
  let settle!: { resolve(value: { sha256: string; bytes: number }): void; reject(error: Error): void };
  const digest = new Promise<{ sha256: string; bytes: number }>(
    (resolve, reject) => (settle = { resolve, reject }),
  );
  // Whoever reads the stream hears of a failure there; the promise alone must not end the process.
  digest.catch(() => undefined);
  const stream = Readable.from(gzipped(dir, entries, options.level ?? 6, settle), {
    objectMode: false,
    highWaterMark: 256 * 1024,
  });
  stream.once('close', () => settle.reject(new Error('The archive was not read to its end')));
  return { manifest, stream, digest };
}

async function* gzipped(
  dir: string,
  entries: readonly PlannedEntry[],
  level: number,
  settle: { resolve(value: { sha256: string; bytes: number }): void; reject(error: Error): void },
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  const total = { compressed: 0, plain: 0, crc: 0 };
  const out = (chunk: Buffer): Buffer => {
    hash.update(chunk);
    total.compressed += chunk.length;
    return chunk;
  };
  const counted = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of inBlocks(tarBytes(dir, entries))) {
      total.crc = crc32(chunk, total.crc);
      total.plain += chunk.length;
      yield chunk;
    }
  };
  const deflate = createDeflateRaw({ level, chunkSize: 64 * 1024 });
  // A failure on either side destroys `deflate` with it, which the loop below throws.
  pipeline(counted(), deflate, () => undefined);
  try {
    // Magic, deflate, no flags, time 0, no extra flags, OS "unknown".
    yield out(Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]));
    for await (const chunk of deflate as AsyncIterable<Buffer>) yield out(chunk);
    const trailer = Buffer.alloc(8);
    trailer.writeUInt32LE(total.crc, 0);
    trailer.writeUInt32LE(total.plain % 2 ** 32, 4);
    yield out(trailer);
    settle.resolve({ sha256: hash.digest('hex'), bytes: total.compressed });
  } catch (error) {
    settle.reject(error as Error);
    throw error;
  } finally {
    deflate.destroy();
  }
}

/** Files up to this size are read whole, several ahead: their time is that of opening and closing them. */
const smallBytes = 64 * 1024;
const readAhead = 16;

async function* tarBytes(dir: string, entries: readonly PlannedEntry[]): AsyncGenerator<Buffer> {
  const pending = new Map<PlannedEntry, Promise<Buffer>>();
  let started = 0;
  for (const [at, entry] of entries.entries()) {
    for (; started < Math.min(entries.length, at + readAhead); started += 1) {
      const next = entries[started]!;
      if (next.type !== 'file' || next.size > smallBytes) continue;
      const bytes = smallFile(join(dir, next.path), next);
      // Heard of when it is its turn.
      bytes.catch(() => undefined);
      pending.set(next, bytes);
    }
    yield tarHeader(entry);
    if (entry.type !== 'file') continue;
    const small = pending.get(entry);
    pending.delete(entry);
    if (small) yield await small;
    else yield* fileBytes(join(dir, entry.path), entry);
    if (entry.size % 512 !== 0) yield padding(entry.size);
  }
  yield Buffer.alloc(1024);
}

/** Blocks of a size at which a compressor's own work is most of what a block costs. */
async function* inBlocks(source: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  const size = 256 * 1024;
  let block = Buffer.allocUnsafe(size);
  let filled = 0;
  for await (const chunk of source) {
    for (let from = 0; from < chunk.length;) {
      const taken = chunk.copy(block, filled, from);
      filled += taken;
      from += taken;
      if (filled < size) continue;
      yield block;
      block = Buffer.allocUnsafe(size);
      filled = 0;
    }
  }
  if (filled > 0) yield block.subarray(0, filled);
}

const changed = ({ path }: PlannedEntry) => new Error(`${path} changed while it was packed. Try again.`);
/** Not followed: the plan saw a file here, so a link is a change. */
const openFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** As `fileBytes`, at once. One byte more is asked for than there should be: it tells of a file that has grown. */
async function smallFile(path: string, entry: PlannedEntry): Promise<Buffer> {
  const file = await open(path, openFlags);
  try {
    const buffer = Buffer.allocUnsafe(entry.size + 1);
    let filled = 0;
    while (filled < entry.size) {
      const { bytesRead } = await file.read(buffer, filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    if (filled !== entry.size) throw changed(entry);
    return buffer.subarray(0, filled);
  } finally {
    await file.close();
  }
}

/** Exactly as many bytes as the header says; a file that is no longer what was planned fails the archive. */
async function* fileBytes(path: string, entry: PlannedEntry): AsyncGenerator<Buffer> {
  const file = await open(path, openFlags);
  try {
    const info = await file.stat();
    if (!info.isFile() || info.size !== entry.size) throw changed(entry);
    let left = entry.size;
    while (left > 0) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(left, 256 * 1024)));
      if (bytesRead === 0) throw changed(entry);
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}
