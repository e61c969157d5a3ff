import type { LogDisk, LogFile } from '../src/money/log-disk.js';

const failure = (code: string) => Object.assign(new Error(code), { code });

/** A disk that fails when it is told to: full, broken, read-only. */
export class FailingDisk implements LogDisk {
  /** Bytes that it still takes; the write that passes the end leaves a part behind, as real ones do. */
  room = Infinity;
  failSync = false;
  failCreate = false;
  writes = 0;

  constructor(private readonly real: LogDisk) {}

  list = () => this.real.list();
  read = (name: string) => this.real.read(name);
  rename = (from: string, to: string) => this.real.rename(from, to);
  remove = (name: string) => this.real.remove(name);

  async create(name: string, size: number): Promise<LogFile> {
    if (this.failCreate) throw failure('EACCES');
    const file = await this.real.create(name, size);
    return {
      write: async (bytes, at) => {
        this.writes += 1;
        if (bytes.length <= this.room) {
          this.room -= bytes.length;
          await file.write(bytes, at);
          // Written, but nobody knows whether it would be there after a power cut.
          if (this.failSync) throw failure('EIO');
          return;
        }
        await file.write(bytes.subarray(0, this.room), at);
        this.room = 0;
        throw failure('ENOSPC');
      },
      truncate: (size) => file.truncate(size),
      close: () => file.close(),
    };
  }
}
