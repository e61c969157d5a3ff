import { connect, type Socket } from 'node:net';
import { isAbort, sleep } from '../../../system/timing.js';

export type Message = Record<string, unknown>;

/** Longest line that is taken: on a guest agent's socket the guest writes what it likes. */
const longest = 1 << 20;

/** Lines of JSON over a unix socket, one question at a time: the form of QEMU's monitor and of its guest agent. */
export class JsonSocket {
  private text = '';
  private readonly waiting = new Set<(message: Message | Error) => void>();

  private constructor(private readonly socket: Socket) {
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => this.read(chunk));
    socket.on('error', () => undefined);
    socket.once('close', () => this.tell(new Error('the socket was closed')));
  }

  /** @throws Error when nobody listens at the path */
  static open(path: string): Promise<JsonSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect(path);
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new JsonSocket(socket));
      });
    });
  }

  send(text: string | Buffer): void {
    this.socket.write(text);
  }

  /**
   * Waits for a message; others that come meanwhile are dropped.
   * @throws Error when none comes in time, or the socket is closed
   */
  async next(accept: (message: Message) => boolean, ms: number): Promise<Message> {
    const over = new AbortController();
    let tell: (message: Message | Error) => void = () => undefined;
    const found = new Promise<Message>((resolve, reject) => {
      tell = (message) => {
        if (message instanceof Error) reject(message);
        else if (accept(message)) resolve(message);
      };
      this.waiting.add(tell);
      if (this.socket.destroyed) reject(new Error('the socket was closed'));
    });
    const late = sleep(ms, over.signal).then(
      () => {
        throw new Error(`no answer within ${ms} ms`);
      },
      (error: unknown) => {
        if (!isAbort(error)) throw error;
        return found;
      },
    );
    try {
      return await Promise.race([found, late]);
    } finally {
      this.waiting.delete(tell);
      over.abort();
      late.catch(() => undefined);
    }
  }

  /** What was sent goes out first: some words have no answer to wait for. */
  close(): void {
    this.socket.end(() => this.socket.destroy());
  }

  private read(chunk: string): void {
    this.text += chunk;
    const lines = this.text.split('\n');
    this.text = lines.pop()!;
    for (const line of lines) {
      // A guest agent marks the answer of `guest-sync-delimited` with the byte 0xff, which is no UTF-8.
      const start = line.indexOf('{');
      if (start < 0) continue;
      try {
        this.tell(JSON.parse(line.slice(start)) as Message);
      } catch {
        // The rest of an answer that somebody else asked for.
      }
    }
    if (this.text.length > longest) this.socket.destroy();
  }

  private tell(message: Message | Error): void {
    for (const each of [...this.waiting]) each(message);
  }
}
