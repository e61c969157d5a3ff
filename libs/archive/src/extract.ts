import { createReadStream } from 'node:fs';
import { chmod, chown, link, lchown, mkdir, open, rm, symlink, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Readable } from 'node:stream';
import { readArchive, type ArchiveSummary, type CheckOptions } from './check.js';
import { type TarEntry, type TarSink } from './tar.js';

export interface ExtractOptions extends CheckOptions {
  /** User and group that shall own everything (needs root), e.g. of a build sandbox. */
  owner?: { uid: number; gid: number };
  /** Ends the work with the signal's reason; the folder is removed as after any failure. */
  signal?: AbortSignal;
}

/**
 * Unpacks an archive into `targetDir`, which must not exist and is made here (its parent must exist). Everything is
 * checked again while it is written: files 0644 or 0755, folders 0755, links as they are, no times and no owners of the
 * archive. One entry is written at a time and awaited, and no entry lies behind a link, so nothing follows a link and
 * nothing is written after a rejection. After a failure the folder is gone.
 * @param source path of the archive, or its bytes
 * @throws ArchiveRefused, or the file system's error
 */
export async function extractArchive(
  source: string | Readable,
  targetDir: string,
  options: ExtractOptions = {},
): Promise<ArchiveSummary> {
  await mkdir(targetDir, { mode: 0o755 });
  const input = typeof source === 'string' ? createReadStream(source) : source;
  const writer = new FolderWriter(targetDir, options);
  try {
    await writer.own(targetDir);
    return await readArchive(input, writer, options);
  } catch (error) {
    await writer.close();
    await rm(targetDir, { recursive: true, force: true });
    throw error;
  } finally {
    if (typeof source === 'string') input.destroy();
  }
}

class FolderWriter implements TarSink {
  private file: FileHandle | null = null;
  private readonly made = new Set<string>();

  constructor(
    private readonly root: string,
    private readonly options: ExtractOptions,
  ) {}

  async entry(entry: TarEntry): Promise<void> {
    this.options.signal?.throwIfAborted();
    const path = join(this.root, entry.path);
    if (entry.type === 'directory') {
      await this.folder(entry.path);
      return;
    }
    await this.folder(dirname(entry.path));
    if (entry.type === 'symlink') {
      await symlink(entry.target!, path);
      if (this.options.owner) await lchown(path, this.options.owner.uid, this.options.owner.gid);
    } else if (entry.type === 'hardlink') await link(join(this.root, entry.target!), path);
    else {
      // 'wx' is O_CREAT | O_EXCL: an existing name, also a link, is an error.
      this.file = await open(path, 'wx', entry.executable ? 0o755 : 0o644);
      // The process's umask must not decide what an archive holds.
      await this.file.chmod(entry.executable ? 0o755 : 0o644);
      if (this.options.owner) await this.file.chown(this.options.owner.uid, this.options.owner.gid);
    }
  }

  async data(chunk: Buffer): Promise<void> {
    this.options.signal?.throwIfAborted();
    await this.file!.writeFile(chunk);
  }

  async fileEnd(): Promise<void> {
    await this.close();
  }

  async close(): Promise<void> {
    const file = this.file;
    this.file = null;
    await file?.close();
  }

  async own(path: string): Promise<void> {
    await chmod(path, 0o755);
    if (this.options.owner) await chown(path, this.options.owner.uid, this.options.owner.gid);
  }

  private async folder(path: string): Promise<void> {
    if (path === '.' || this.made.has(path)) return;
    await this.folder(dirname(path));
    const full = join(this.root, path);
    await mkdir(full);
    await this.own(full);
    this.made.add(path);
  }
}
