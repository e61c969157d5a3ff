import { createHash } from 'node:crypto';
import { constants, createReadStream, createWriteStream } from 'node:fs';
import { copyFile, mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type BlobRef, type MachineSpec } from '@nebo/contracts';
import { MachineFault } from '../../machine-driver.js';
import { type BlobAccess } from '../../types.js';
import { qcow2Links } from './qcow2-header.js';
import { runTool } from './run-tool.js';

/** How a machine is started past its firmware: files of the store, and the kernel's command line. */
export interface DirectBoot {
  kernel: string;
  initrd: string;
  append: string;
}

export type DiskFormat = 'qcow2' | 'raw';

/** An image in the store. */
export interface StoredImage {
  /** Hash of the disk's bytes: its name in the store. */
  sha256: string;
  boot: DirectBoot | null;
}

/** `<filename>.json` beside an image of the images folder (docs/operating.md). */
interface Manifest {
  boot?: { kernel: FileNote; initrd: FileNote; append: string };
}
interface FileNote {
  file: string;
  sha256: string;
}

/** What nobody uses is kept for so long: a failed machine is often made again. */
const idleMs = 60 * 60_000;

/**
 * Bytes that disks are made of, by their hash: images of the operator's folder (copied, since a disk must not change under
 * the machines that stand on it), registered images and backups (fetched). A file is never written to once it has its name.
 */
export class ImageStore {
  private readonly coming = new Map<string, Promise<void>>();
  /** Hashes of files of the images folder, by what says that they are the same file still. */
  private readonly known = new Map<string, string>();

  /**
   * @param dir of the store
   * @param images the operator's folder
   */
  constructor(
    private readonly dir: string,
    private readonly images: string,
  ) {}

  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.dir))
      if (name.endsWith('.part')) await rm(join(this.dir, name), { force: true });
  }

  path(sha256: string): string {
    return join(this.dir, sha256);
  }

  /**
   * The image of a machine, in the store.
   * @throws MachineFault when there is none or it is none; Error when it cannot be fetched now
   */
  async image(
    { image }: Pick<MachineSpec, 'image'>,
    blobs: BlobAccess,
    signal: AbortSignal,
  ): Promise<StoredImage> {
    if (image.blob) return { sha256: await this.blob(image.blob, blobs, signal), boot: null };
    const { filename } = image;
    if (!/^[\w][\w.+-]{0,200}$/.test(filename)) throw new MachineFault('the name of the image is none');
    const disk = join(this.images, filename);
    if (!(await stat(disk).catch(() => null)))
      throw new MachineFault(`this region does not have the image ${filename}`);
    const manifest = await this.manifest(filename);
    const sha256 = await this.own(disk, null);
    await this.checkDisk(sha256, signal);
    if (!manifest?.boot) return { sha256, boot: null };
    const { kernel, initrd, append } = manifest.boot;
    const file = (note: FileNote) => this.own(join(this.images, safeName(note.file)), note.sha256);
    return { sha256, boot: { kernel: await file(kernel), initrd: await file(initrd), append } };
  }

  /**
   * A blob of the control plane, checked and in the store.
   * @throws MachineFault when it is no disk that may be used
   */
  async blob({ sha256 }: BlobRef, blobs: BlobAccess, signal: AbortSignal): Promise<string> {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new MachineFault('the image is not named by a hash');
    while (!(await this.touched(sha256))) {
      const other = this.coming.get(sha256);
      if (other) {
        // Somebody else fetches it; if that one is broken off, this one does it.
        await other.catch(() => undefined);
        signal.throwIfAborted();
        continue;
      }
      const work = this.fetch(sha256, blobs, signal).finally(() => this.coming.delete(sha256));
      this.coming.set(sha256, work);
      await work;
    }
    await this.checkDisk(sha256, signal);
    return sha256;
  }

  /** A disk of the store: how it is to be read, and its size as a machine sees it, bytes. */
  async disk(sha256: string, signal: AbortSignal): Promise<{ format: DiskFormat; bytes: number }> {
    const path = this.path(sha256);
    if ((await formatOf(path)) === 'raw') return { format: 'raw', bytes: (await stat(path)).size };
    return { format: 'qcow2', bytes: (await this.info(sha256, signal))['virtual-size'] as number };
  }

  /** Removes what is not used and has not been for an hour. */
  async collect(used: ReadonlySet<string>): Promise<void> {
    for (const name of await readdir(this.dir)) {
      if (used.has(name) || !/^[0-9a-f]{64}$/.test(name)) continue;
      const { mtimeMs } = await stat(this.path(name));
      if (Date.now() - mtimeMs > idleMs) await rm(this.path(name), { force: true });
    }
  }

  private async manifest(filename: string): Promise<Manifest | null> {
    const text = await readFile(join(this.images, `${filename}.json`), 'utf8').catch(() => null);
    return text === null ? null : (JSON.parse(text) as Manifest);
  }

  /** A file of the images folder, copied into the store. @param expected its hash where somebody has said it */
  private async own(path: string, expected: string | null): Promise<string> {
    const { mtimeMs, size, ino } = await stat(path);
    const mark = `${path}|${ino}|${size}|${mtimeMs}`;
    const hash = this.known.get(mark) ?? (await hashOf(path));
    if (expected !== null && hash !== expected)
      throw new MachineFault('the files of this image in the region do not belong together');
    this.known.set(mark, hash);
    if (await this.touched(hash)) return hash;
    const part = `${this.path(hash)}.${process.pid}.${Date.now()}.part`;
    try {
      await copyFile(path, part, constants.COPYFILE_FICLONE);
      if ((await hashOf(part)) !== hash) throw new Error(`${path} changed while it was copied`);
      await rename(part, this.path(hash));
    } finally {
      await rm(part, { force: true });
    }
    return hash;
  }

  private async fetch(sha256: string, blobs: BlobAccess, signal: AbortSignal): Promise<void> {
    const part = `${this.path(sha256)}.part`;
    const hash = createHash('sha256');
    const bytes = await blobs.get(sha256, signal);
    try {
      await pipeline(
        bytes,
        async function* (source: AsyncIterable<Buffer>) {
          for await (const chunk of source) {
            hash.update(chunk);
            yield chunk;
          }
        },
        createWriteStream(part, { mode: 0o600 }),
        { signal },
      );
      if (hash.digest('hex') !== sha256) throw new Error(`blob ${sha256} came with other bytes`);
      await rename(part, this.path(sha256));
    } finally {
      await rm(part, { force: true });
    }
  }

  /** Whether it is there; what is asked for is used. */
  private async touched(sha256: string): Promise<boolean> {
    const now = new Date();
    return utimes(this.path(sha256), now, now).then(
      () => true,
      () => false,
    );
  }

  /** A qcow2 file may name other files as its backing or data: one that comes from a user must not lead to those of the host. */
  private async checkDisk(sha256: string, signal: AbortSignal): Promise<void> {
    if ((await formatOf(this.path(sha256))) === 'raw') return;
    const links = await qcow2Links(this.path(sha256));
    // Before any tool of QEMU looks: some versions open a data file when they are only asked about it.
    if (links?.backing != null || links?.hasDataFile)
      throw new MachineFault('the image refers to another file');
    const info = await this.info(sha256, signal);
    const data = (info['format-specific'] as { data?: Record<string, unknown> } | undefined)?.data ?? {};
    if (info['backing-filename'] !== undefined || data['data-file'] !== undefined)
      throw new MachineFault('the image refers to another file');
  }

  private async info(sha256: string, signal: AbortSignal): Promise<Record<string, unknown>> {
    const argv = ['qemu-img', 'info', '--output=json', '-U', '-f', 'qcow2', this.path(sha256)];
    const text = await runTool(argv, signal, 60_000).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new MachineFault(
        `the image is no qcow2 file (${(error as Error).message.split(':').at(-1)!.trim()})`,
      );
    });
    return JSON.parse(text) as Record<string, unknown>;
  }
}

/** A file beside the image and nowhere else. */
function safeName(file: string): string {
  if (!/^[\w][\w.+-]{0,200}$/.test(file)) throw new MachineFault('the image names files that are none');
  return file;
}

/**
 * How a disk is to be read, which QEMU must not guess: the first bytes of a raw one are the guest's.
 * @throws MachineFault when it is neither
 */
async function formatOf(path: string): Promise<DiskFormat> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(520), 0, 520, 0);
    if (buffer.toString('latin1', 0, 4) === 'QFI\xfb') return 'qcow2';
    const table = buffer.readUInt16BE(510) === 0x55aa || buffer.toString('latin1', 512) === 'EFI PART';
    if (bytesRead === 520 && table) return 'raw';
    throw new MachineFault('the image is no qcow2 file and no raw one with a partition table');
  } finally {
    await file.close();
  }
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
