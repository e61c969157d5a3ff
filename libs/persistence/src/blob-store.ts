import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { access, mkdir, open, opendir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** What identifies stored bytes. */
export interface StoredBlob {
  /** 64 lower-case hex digits. */
  sha256: string;
  bytes: number;
}

/** Bytes by content: archives, artifacts, logs, images. A row in PostgreSQL owns each blob. */
export interface BlobStore {
  /**
   * Stores a stream; nothing of it is visible before it is whole and on disk.
   * @param expected refuse other content
   * @throws BlobMismatch when the content has another hash than expected
   */
  put(source: Readable | Buffer, expected?: string): Promise<StoredBlob>;
  /** @throws BlobMissing */
  get(sha256: string): Promise<Readable>;
  has(sha256: string): Promise<boolean>;
  /** Bytes of a blob, or null when it is absent. */
  size(sha256: string): Promise<number | null>;
  /** A file with the content, where the driver has one on this machine. */
  path(sha256: string): string | null;
  /** Safe to call for an absent blob. */
  delete(sha256: string): Promise<void>;
  list(): AsyncIterable<string>;
}

export class BlobMismatch extends Error {
  override name = 'BlobMismatch';
}

export class BlobMissing extends Error {
  override name = 'BlobMissing';
}

const hashForm = /^[0-9a-f]{64}$/;

/** Blobs as files `<folder>/ab/cd/<sha256>`. */
export class FolderBlobStore implements BlobStore {
  constructor(private readonly folder: string) {}

  async put(source: Readable | Buffer, expected?: string): Promise<StoredBlob> {
    const incoming = join(this.folder, 'incoming', randomUUID());
    await mkdir(dirname(incoming), { recursive: true, mode: 0o700 });
    const hash = createHash('sha256');
    let bytes = 0;
    const count = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        hash.update(chunk);
        done(null, chunk);
      },
    });
    try {
      const input = Buffer.isBuffer(source) ? Readable.from([source]) : source;
      await pipeline(input, count, createWriteStream(incoming, { mode: 0o600, flags: 'wx' }));
      const sha256 = hash.digest('hex');
      if (expected !== undefined && expected !== sha256) throw new BlobMismatch(`expected ${expected}, got ${sha256}`);
      await flush(incoming);
      const path = this.path(sha256);
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await rename(incoming, path);
      return { sha256, bytes };
    } finally {
      await rm(incoming, { force: true });
    }
  }

  async get(sha256: string): Promise<Readable> {
    const path = this.path(sha256);
    await access(path).catch(() => {
      throw new BlobMissing(`no blob ${sha256}`);
    });
    return createReadStream(path);
  }

  async has(sha256: string): Promise<boolean> {
    return (await this.size(sha256)) !== null;
  }

  async size(sha256: string): Promise<number | null> {
    return stat(this.path(sha256)).then(
      (found) => found.size,
      () => null,
    );
  }

  path(sha256: string): string {
    if (!hashForm.test(sha256)) throw new BlobMissing(`"${sha256}" is not a blob's hash`);
    return join(this.folder, sha256.slice(0, 2), sha256.slice(2, 4), sha256);
  }

  async delete(sha256: string): Promise<void> {
    await rm(this.path(sha256), { force: true });
  }

  async *list(): AsyncIterable<string> {
    const folder = await opendir(this.folder, { recursive: true }).catch(() => null);
    if (!folder) return;
    for await (const entry of folder) if (entry.isFile() && hashForm.test(entry.name)) yield entry.name;
  }
}

/** The content must be on disk before its name is. */
async function flush(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
