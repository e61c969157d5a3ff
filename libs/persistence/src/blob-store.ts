import { createHash, randomBytes } from 'node:crypto';

import { mkdir, open, opendir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type Readable } from 'node:stream';

/** Part of a blob: byte offsets, both inclusive as in HTTP ranges; `end` may lie behind the blob's end. */
export interface BlobRange {
  start: number;
  end?: number;
}

export interface StoredBlob {
  /** 64 lower-case hex digits. */
  sha256: string;
  bytes: number;
}

export interface ListedBlob extends StoredBlob {
  /** When it was last put; what no row owns is collected a day after this (interfaces.md section 8). */
  storedAt: Date;
}

/** Bytes by their SHA-256: archives, artifacts, logs, backups, images. A row in Postgres owns each blob. */
export interface BlobStore {
  /**
   * Stores bytes and says under what name. Nothing can be read before all of it is durable.
   * @param expected the hash that the bytes must have
   * @throws BlobMismatch when they have another; errors of the source as they are
   */
  put(source: Readable | Buffer, expected?: string): Promise<StoredBlob>;
  /** @throws BlobNotFound */
  get(sha256: string, range?: BlobRange): Promise<Readable>;
  /** The blob's file where the store is a folder, null in other stores. @throws BlobNotFound */
  path(sha256: string): Promise<string | null>;
  /** Size in bytes, or null when it is not there. */
  has(sha256: string): Promise<number | null>;
  /** True when there was something to delete. */
  delete(sha256: string): Promise<boolean>;
  list(): AsyncIterable<ListedBlob>;
  /** Removes what writers left that ended in the middle: parts older than `olderThanMs` (default one hour). Returns how many. */
  sweep(olderThanMs?: number): Promise<number>;
}

export class BlobNotFound extends Error {
  constructor(readonly sha256: string) {
    super(`There is no blob ${sha256}`);
    this.name = 'BlobNotFound';
  }
}

export class BlobMismatch extends Error {
  constructor(
    readonly expected: string,
    readonly actual: string,
  ) {
    super(`The bytes have the hash ${actual}, not ${expected}`);
    this.name = 'BlobMismatch';
  }
}

/** @throws TypeError unless it is 64 lower-case hex digits, so that no name can become another path */
export function assertSha256(sha256: string): void {
  if (!/^[0-9a-f]{64}$/.test(sha256)) throw new TypeError('A blob is named by 64 lower-case hex digits');
}

const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ENOENT';

/**
 * Blobs in a folder: `ab/cd/<sha256>`, folders 0700, files 0600. A blob is written to `tmp/`, synced, and renamed, so a
 * crash leaves either the whole blob or a file in `tmp/` that `sweep` removes.
 */
export class FolderBlobStore implements BlobStore {
  constructor(private readonly root: string) {}

  async put(source: Readable | Buffer, expected?: string): Promise<StoredBlob> {
    if (expected !== undefined) assertSha256(expected);
    // A source may break off before anybody reads it; the reading below hears of that, but only later.
    if (!Buffer.isBuffer(source)) source.on('error', () => undefined);
    const tmp = join(this.root, 'tmp');
    await mkdir(tmp, { recursive: true, mode: 0o700 });
    const partial = join(tmp, randomBytes(12).toString('hex'));
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      const file = await open(partial, 'wx', 0o600);
      try {
        const chunks = Buffer.isBuffer(source) ? [source] : source;
        for await (const chunk of chunks as AsyncIterable<Buffer | string>) {
          const part = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
          hash.update(part);
          bytes += part.length;
          await file.writeFile(part);
        }
        await file.sync();
      } finally {
        await file.close();
      }
      const sha256 = hash.digest('hex');
      if (expected !== undefined && expected !== sha256) throw new BlobMismatch(expected, sha256);
      await this.settle(partial, sha256);
      return { sha256, bytes };
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
  }

  /** Moves a finished file to its name. An equal blob that is there keeps its bytes and gets a new time. */
  private async settle(partial: string, sha256: string): Promise<void> {
    const folder = join(this.root, sha256.slice(0, 2), sha256.slice(2, 4));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await rename(partial, join(folder, sha256));
    // The rename is durable only once the folder is; so is a folder just made only in its parent.
    for (const path of [folder, join(folder, '..'), this.root]) {
      const handle = await open(path, 'r');
      await handle.sync().finally(() => handle.close());
    }
  }

  async get(sha256: string, range?: BlobRange): Promise<Readable> {
    const path = this.file(sha256);
    try {
      const handle = await open(path, 'r');
      const options: { start?: number; end?: number } = {};
      if (range) options.start = range.start;
      if (range?.end !== undefined) options.end = range.end;
      return handle.createReadStream(options);
    } catch (error) {
      throw isMissing(error) ? new BlobNotFound(sha256) : error;
    }
  }

  async path(sha256: string): Promise<string> {
    if ((await this.has(sha256)) === null) throw new BlobNotFound(sha256);
    return this.file(sha256);
  }

  async has(sha256: string): Promise<number | null> {
    try {
      return (await stat(this.file(sha256))).size;
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
  }

  async delete(sha256: string): Promise<boolean> {
    try {
      await rm(this.file(sha256));
      return true;
    } catch (error) {
      if (isMissing(error)) return false;
      throw error;
    }
  }

  async *list(): AsyncIterable<ListedBlob> {
    for await (const outer of folders(this.root))
      for await (const inner of folders(join(this.root, outer)))
        for await (const sha256 of names(join(this.root, outer, inner))) {
          if (!/^[0-9a-f]{64}$/.test(sha256)) continue;
          const info = await stat(this.file(sha256)).catch((error: unknown) => {
            if (isMissing(error)) return null;
            throw error;
          });
          if (info) yield { sha256, bytes: info.size, storedAt: info.mtime };
        }
  }

  /** Removes what a crash left in `tmp/`: files older than `olderThanMs` (default one hour). Returns how many. */
  async sweep(olderThanMs = 3_600_000): Promise<number> {
    let removed = 0;
    for await (const name of names(join(this.root, 'tmp'))) {
      const path = join(this.root, 'tmp', name);
      const info = await stat(path).catch(() => null);
      if (!info || Date.now() - info.mtimeMs < olderThanMs) continue;
      await rm(path, { force: true });
      removed++;
    }
    return removed;
  }

  /** Says that a blob is wanted again, so that the collector waits another day. */
  async touch(sha256: string): Promise<void> {
    const now = new Date();
    await utimes(this.file(sha256), now, now).catch((error: unknown) => {
      throw isMissing(error) ? new BlobNotFound(sha256) : error;
    });
  }

  private file(sha256: string): string {
    assertSha256(sha256);
    return join(this.root, sha256.slice(0, 2), sha256.slice(2, 4), sha256);
  }
}

async function* names(path: string): AsyncIterable<string> {
  let folder;
  try {
    folder = await opendir(path);
  } catch (error) {
    if (isMissing(error)) return;
    throw error;
  }
  for await (const entry of folder) yield entry.name;
}

async function* folders(path: string): AsyncIterable<string> {
  for await (const name of names(path)) if (/^[0-9a-f]{2}$/.test(name)) yield name;
}

/** Reads a whole blob that is known to be small. @throws BlobNotFound, RangeError above `limit` bytes */
export async function readSmallBlob(store: BlobStore, sha256: string, limit: number): Promise<Buffer> {
  const bytes = await store.has(sha256);
  if (bytes === null) throw new BlobNotFound(sha256);
  if (bytes > limit) throw new RangeError(`Blob ${sha256} is larger than ${limit} bytes`);
  const parts: Buffer[] = [];
  for await (const part of await store.get(sha256)) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
