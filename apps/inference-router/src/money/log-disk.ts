import { type FileHandle, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** A segment that is being written. */
export interface LogFile {
  /** Appends all of it, or throws. */
  append(bytes: Buffer): Promise<void>;
  /** Makes what was appended survive a power cut. */
  sync(): Promise<void>;
  /** Cuts the file off. */
  truncate(size: number): Promise<void>;
  close(): Promise<void>;
}

/** What the settlement log needs of a file system; tests have one that fails. */
export interface LogDisk {
  /** Names of files, in any order. */
  list(): Promise<string[]>;
  read(name: string): Promise<Buffer>;
  /** A new file, whose name survives a power cut as well. */
  create(name: string): Promise<LogFile>;
  rename(from: string, to: string): Promise<void>;
  remove(name: string): Promise<void>;
}

/** A folder of this machine. */
export class FolderDisk implements LogDisk {
  constructor(private readonly folder: string) {}

  async list(): Promise<string[]> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    return readdir(this.folder);
  }

  read(name: string): Promise<Buffer> {
    return readFile(join(this.folder, name));
  }

  async create(name: string): Promise<LogFile> {
    const handle = await open(join(this.folder, name), 'ax', 0o600);
    try {
      const folder = await open(this.folder, 'r');
      await folder.sync().finally(() => folder.close());
    } catch (error) {
      await handle.close();
      throw error;
    }
    return new FolderFile(handle);
  }

  rename(from: string, to: string): Promise<void> {
    return rename(join(this.folder, from), join(this.folder, to));
  }

  remove(name: string): Promise<void> {
    return rm(join(this.folder, name), { force: true });
  }
}

class FolderFile implements LogFile {
  constructor(private readonly handle: FileHandle) {}

  async append(bytes: Buffer): Promise<void> {
    // A full disk may take a part.
    for (let at = 0; at < bytes.length;)
      at += (await this.handle.write(bytes, at, bytes.length - at)).bytesWritten;
  }

  sync(): Promise<void> {
    return this.handle.datasync();
  }

  truncate(size: number): Promise<void> {
    return this.handle.truncate(size);
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}
