import { closeSync, fstatSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs';
import { connect, type Socket } from 'node:net';

/** Bytes of one of the two files, the older of which goes. */
const most = 256 * 1024;

/**
 * Takes down what a machine writes to its serial line, bounded whatever it writes. QEMU drops what comes while nobody
 * listens, so a machine cannot fill the disk while there is no agent.
 */
export class SerialLog {
  private socket: Socket | null = null;
  private fd: number | null = null;

  constructor(private readonly path: string) {}

  /** Begins to listen; a machine that is not there is fine. Settled when the line is open. */
  attach(socketPath: string): Promise<void> {
    this.close();
    this.fd = openSync(this.path, 'a', 0o600);
    return new Promise((resolve) => {
      const socket = connect(socketPath);
      this.socket = socket;
      socket.once('connect', () => resolve());
      socket.on('data', (chunk: Buffer) => this.write(chunk));
      socket.on('error', () => resolve());
      socket.once('close', () => {
        if (this.socket === socket) this.close();
        resolve();
      });
      // It must not keep a process that is done otherwise.
      socket.unref();
    });
  }

  close(): void {
    this.socket?.destroy();
    this.socket = null;
    if (this.fd !== null) closeSync(this.fd);
    this.fd = null;
  }

  /** The last lines, without what a terminal would act on. */
  last(lines: number): string[] {
    const read = (path: string) => {
      try {
        return readFileSync(path, 'utf8');
      } catch {
        return '';
      }
    };
    return `${read(`${this.path}.1`)}${read(this.path)}`
      .split(/\r?\n/)
      .map((line) => line.replace(/[^\x20-\x7e]/g, '').trim())
      .filter((line) => line !== '')
      .slice(-lines);
  }

  private write(chunk: Buffer): void {
    if (this.fd === null) return;
    try {
      writeSync(this.fd, chunk);
      if (fstatSync(this.fd).size <= most) return;
      closeSync(this.fd);
      this.fd = null;
      renameSync(this.path, `${this.path}.1`);
      this.fd = openSync(this.path, 'a', 0o600);
    } catch {
      // The machine's folder is gone, or the disk is full: its words are not worth more.
    }
  }
}
