import { constants, fdatasync, write } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A segment that is being written. */
export interface LogFile {
  /** Puts all of it at this place so that it survives a power cut, or throws. */
  write(bytes: Buffer, at: number): Promise<void>;
  /** Cuts the file off, so that it stays so after a power cut. */
  truncate(size: number): Promise<void>;
  close(): Promise<void>;
}

/** What the settlement log needs of a file system; tests have one that fails. */
export interface LogDisk {
  /** Names of files, in any order. */
  list(): Promise<string[]>;
  read(name: string): Promise<Buffer>;
  /**
   * A new file of zeros, which survives a power cut as well as its name does.
   * @param size bytes that it has room for; what is written behind them makes it longer
   */
  create(name: string, size: number): Promise<LogFile>;
  rename(from: string, to: string): Promise<void>;
  remove(name: string): Promise<void>;
}

const { O_WRONLY } = constants;
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

  async create(name: string, size: number): Promise<LogFile> {
    const path = join(this.folder, name);
    let handle: FileHandle | undefined;
    try {
      // Real zeros: a write into them changes data alone. Where a file grows, or gets its blocks, the file system's journal
      // goes to the disk with each write too, which takes twice the processor and twice the time.
      await writeFile(path, Buffer.alloc(size), { flag: 'wx', mode: 0o600, flush: true });
      handle = await open(path, O_WRONLY | writeThrough);
      const folder = await open(this.folder, 'r');
      await folder.sync().finally(() => folder.close());
    } catch (error) {
      await handle?.close();
      await rm(path, { force: true });
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

  write(bytes: Buffer, at: number): Promise<void> {
    const { fd } = this.handle;
    // Callbacks: the promises of file handles cost more than the write is to cost.
    return new Promise((resolve, reject) => {
      const done = (error: Error | null) => (error ? reject(error) : resolve());
      const from = (start: number): void =>
        write(fd, bytes, start, bytes.length - start, at + start, (error, written) => {
          // A full disk may take a part.
          if (error) done(error);
          else if (start + written < bytes.length) from(start + written);
          else if (writeThrough === 0) fdatasync(fd, done);
          else done(null);
        });
      from(0);
    });
  }

  async truncate(size: number): Promise<void> {
    await this.handle.truncate(size);
    // The file writes through, its size does not: a power cut must not bring back what somebody was told is free.
    await this.handle.datasync();
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}
