import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { crc32, createDeflateRaw } from 'node:zlib';
import { type Headers, pack as tarPack, type Pack } from 'tar-stream';
import { keepAll, sourceRules } from './ignore-rules.js';
import { archiveLimits, type ArchiveLimits } from './limits.js';
import { planFolder, type LeftOut, type PlannedEntry } from './plan.js';

export interface PackOptions {
  /** `source` (default): the rules of a source folder. `none`: keep everything, for artifacts. */
  ignoreRules?: 'source' | 'none';
  /** False: a `.gitignore` does not count (`--no-gitignore`). Default true. */
  gitignore?: boolean;
  limits?: Partial<ArchiveLimits>;
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
  const rules = options.ignoreRules === 'none' ? keepAll : await sourceRules(dir, options.gitignore ?? true);
  const { entries, warnings } = await planFolder(dir, rules, limits);
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
  const digest = new Promise<{ sha256: string; bytes: number }>((resolve, reject) => (settle = { resolve, reject }));
  // Whoever reads the stream hears of a failure there; the promise alone must not end the process.
  digest.catch(() => undefined);
  const stream = Readable.from(gzipped(dir, entries, settle), { objectMode: false, highWaterMark: 256 * 1024 });
  stream.once('close', () => settle.reject(new Error('The archive was not read to its end')));
  return { manifest, stream, digest };
}

async function* gzipped(
  dir: string,
  entries: readonly PlannedEntry[],
  settle: { resolve(value: { sha256: string; bytes: number }): void; reject(error: Error): void },
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let bytes = 0;
  let crc = 0;
  let plain = 0;
  const out = (chunk: Buffer): Buffer => {
    hash.update(chunk);
    bytes += chunk.length;
    return chunk;
  };
  const tar = tarPack();
  const deflate = createDeflateRaw({ level: 6, chunkSize: 64 * 1024 });
  let failure: Error | undefined;
  const filling = fill(tar, dir, entries).catch((error: Error) => {
    failure = error;
    deflate.destroy(error);
    tar.destroy(error);
  });
  const counted = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of tar as AsyncIterable<Buffer>) {
      crc = crc32(chunk, crc);
      plain += chunk.length;
      yield chunk;
    }
  };
  pipeline(counted(), deflate, (error) => {
    if (error) failure ??= error;
  });
  try {
    // Magic, deflate, no flags, time 0, no extra flags, OS "unknown".
    yield out(Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]));
    for await (const chunk of deflate as AsyncIterable<Buffer>) yield out(chunk);
    await filling;
    if (failure) throw failure;
    const trailer = Buffer.alloc(8);
    trailer.writeUInt32LE(crc, 0);
    trailer.writeUInt32LE(plain % 2 ** 32, 4);
    yield out(trailer);
    settle.resolve({ sha256: hash.digest('hex'), bytes });
  } catch (error) {
    settle.reject(failure ?? (error as Error));
    throw failure ?? error;
  } finally {
    tar.destroy();
    deflate.destroy();
    await filling;
  }
}

async function fill(tar: Pack, dir: string, entries: readonly PlannedEntry[]): Promise<void> {
  for (const entry of entries) {
    if (tar.destroyed) return;
    const header: Headers = {
      name: entry.path,
      type: entry.type,
      size: entry.size,
      mode: entry.mode,
      mtime: new Date(0),
      uid: 0,
      gid: 0,
      uname: '',
      gname: '',
    };
    if (entry.target !== null) header.linkname = entry.target;
    if (entry.type === 'file') await addFile(tar, header, join(dir, entry.path));
    else
      await new Promise<void>((resolve, reject) => {
        tar.once('close', resolve);
        tar.entry(header, (error) => {
          tar.off('close', resolve);
          if (error) reject(error);
          else resolve();
        });
      });
  }
  tar.finalize();
}

/** Reads exactly as many bytes as the header says. */
async function addFile(tar: Pack, header: Headers, path: string): Promise<void> {
  const changed = () => new Error(`${header.name} changed while it was packed. Try again.`);
  const file = await open(path, 'r');
  try {
    const info = await file.stat();
    if (!info.isFile() || info.size !== header.size) throw changed();
    await new Promise<void>((resolve, reject) => {
      const sink = tar.entry(header, (error) => (error ? reject(error) : resolve()));
      const gone = () => reject(new Error('The archive was not read to its end'));
      tar.once('close', gone);
      void (async () => {
        let left = header.size!;
        while (left > 0) {
          const { bytesRead, buffer } = await file.read(Buffer.alloc(Math.min(left, 64 * 1024)));
          if (bytesRead === 0) throw changed();
          left -= bytesRead;
          if (!sink.write(buffer.subarray(0, bytesRead)))
            await new Promise<void>((go) => {
              sink.once('drain', go);
              sink.once('close', go);
            });
          if (tar.destroyed) return;
        }
        sink.end();
      })().catch(reject);
    }).finally(() => tar.removeAllListeners('close'));
  } finally {
    await file.close();
  }
}
