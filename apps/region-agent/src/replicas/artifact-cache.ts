import { mkdir, readdir, readFile, rename, rm, utimes, writeFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { artifactLimits, extractArchive } from '@nebo/archive';
import { type BlobAccess } from '../drivers/types.js';

/**
 * Unpacks a blob into a folder that is not there yet, and says what hash the blob had and how many bytes it takes unpacked.
 * After a failure the folder may be half made.
 */
export type Unpack = (
  sha256: string,
  into: string,
  blobs: BlobAccess,
  signal: AbortSignal,
) => Promise<{ sha256: string; bytes: number }>;

const unpackArchive: Unpack = async (sha256, into, blobs, signal) => {
  const bytes = await blobs.get(sha256, signal);
  bytes.on('error', () => undefined);
  const summary = await extractArchive(bytes, into, { limits: artifactLimits, signal }).finally(() =>
    bytes.destroy(),
  );
  return { sha256: summary.sha256, bytes: summary.expandedBytes };
};

/** Unpacked artifacts by hash, shared by the replicas that run them; the longest unused go when it grows too large. */
export class ArtifactCache {
  private readonly holders = new Map<string, number>();
  private readonly fetching = new Map<string, Promise<string>>();

  constructor(
    private readonly dir: string,
    private readonly capBytes: number,
    private readonly unpack: Unpack = unpackArchive,
  ) {}

  /** Removes half-made folders of an earlier agent. */
  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o755 });
    for (const name of await readdir(this.dir))
      if (name.endsWith('.part')) await rm(join(this.dir, name), { recursive: true, force: true });
  }

  /**
   * The artifact's folder, fetched when it is not there; held until `release`.
   * @throws when it cannot be fetched or its bytes have another hash
   */
  async hold(sha256: string, blobs: BlobAccess, signal: AbortSignal): Promise<string> {
    this.holders.set(sha256, (this.holders.get(sha256) ?? 0) + 1);
    try {
      for (;;) {
        const known = this.fetching.get(sha256);
        if (known) {
          // Another replica fetches it; if that one is stopped, this one does it itself.
          const path = await known.catch(() => null);
          signal.throwIfAborted();
          if (path) return path;
          continue;
        }
        const work = this.fetch(sha256, blobs, signal);
        this.fetching.set(sha256, work);
        try {
          return await work;
        } finally {
          this.fetching.delete(sha256);
        }
      }
    } catch (error) {
      this.release(sha256);
      throw error;
    }
  }

  release(sha256: string): void {
    const left = (this.holders.get(sha256) ?? 1) - 1;
    if (left > 0) this.holders.set(sha256, left);
    else this.holders.delete(sha256);
  }

  private async fetch(sha256: string, blobs: BlobAccess, signal: AbortSignal): Promise<string> {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new Error('An artifact is named by 64 hex digits');
    const folder = join(this.dir, sha256);
    const note = `${folder}.bytes`;
    if (await stat(note).catch(() => null)) {
      const now = new Date();
      await utimes(note, now, now);
      return folder;
    }
    const part = `${folder}.part`;
    await rm(part, { recursive: true, force: true });
    let size: number;
    try {
      const unpacked = await this.unpack(sha256, part, blobs, signal);
      if (unpacked.sha256 !== sha256)
        throw new Error(`Artifact ${sha256} came with other bytes (${unpacked.sha256})`);
      size = unpacked.bytes;
    } catch (error) {
      await rm(part, { recursive: true, force: true });
      throw error;
    }
    await rm(folder, { recursive: true, force: true });
    await rename(part, folder);
    // Written last: a folder without it is not trusted.
    await writeFile(note, String(size));
    await this.shrink();
    return folder;
  }

  /** Removes the longest unused artifacts that nobody holds until the cap is kept. */
  private async shrink(): Promise<void> {
    const known: { sha256: string; bytes: number; used: number }[] = [];
    for (const name of await readdir(this.dir)) {
      if (!name.endsWith('.bytes')) continue;
      const path = join(this.dir, name);
      const [text, info] = [await readFile(path, 'utf8'), await stat(path)];
      known.push({ sha256: name.slice(0, -6), bytes: Number(text) || 0, used: info.mtimeMs });
    }
    let total = known.reduce((sum, entry) => sum + entry.bytes, 0);
    known.sort((a, b) => a.used - b.used);
    for (const { sha256, bytes } of known) {
      if (total <= this.capBytes) return;
      if (this.holders.has(sha256)) continue;
      await rm(join(this.dir, `${sha256}.bytes`), { force: true });
      await rm(join(this.dir, sha256), { recursive: true, force: true });
      total -= bytes;
    }
  }
}
