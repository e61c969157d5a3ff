import { constants, fdatasync, write } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** A segment that is being written. */
export interface LogFile {
  /** Appends all of it so that it survives a power cut, or throws. */
  append(bytes: Buffer): Promise<void>;
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

const { O_APPEND, O_CREAT, O_EXCL, O_WRONLY } = constants;
/**
 * Each write is on the disk when it returns, which spares the way through the thread pool that a sync of its own would take
 * (it costs as much as all else that is done for a settlement). Not everywhere known: 0 then.
 */
const writeThrough: number = (constants as { O_DSYNC?: number }).O_DSYNC ?? 0;

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
    const handle = await open(
      join(this.folder, name),
      O_APPEND | O_CREAT | O_EXCL | O_WRONLY | writeThrough,
      0o600,
    );
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

  append(bytes: Buffer): Promise<void> {
    const { fd } = this.handle;
    // Callbacks: the promises of file handles cost more than the write is to cost.
    return new Promise((resolve, reject) => {
      const done = (error: Error | null) => (error ? reject(error) : resolve());
      const from = (at: number): void =>
        write(fd, bytes, at, bytes.length - at, null, (error, written) => {
          // A full disk may take a part.
          if (error) done(error);
          else if (at + written < bytes.length) from(at + written);
          else if (writeThrough === 0) fdatasync(fd, done);
          else done(null);
        });
      from(0);
    });
  }

  truncate(size: number): Promise<void> {
    return this.handle.truncate(size);
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}
