import { type Socket } from 'node:net';
import { type Readable } from 'node:stream';
import { Http1Error } from './errors.js';

/** The stream of a request's body on its way, in chunks or with a length, no faster than the socket takes it. */
export class Upload {
  /** The whole body was given to the socket. */
  isDone = false;
  /** The socket has more than it can send. */
  isBlocked = false;
  private isBegun = false;
  private isOver = false;
  private sent = 0;

  /**
   * @param length bytes that there have to be; null: in chunks
   * @param onMoved something was sent
   * @param onFailed told once, unless it was stopped; the socket cannot be used any more
   */
  constructor(
    private readonly source: Readable,
    private readonly socket: Socket,
    private readonly length: number | null,
    private readonly onMoved: () => void,
    private readonly onFailed: (error: Http1Error) => void,
  ) {}

  /** Begins to read. May be called twice. */
  begin(): void {
    if (this.isBegun || this.isOver) return;
    this.isBegun = true;
    const { source } = this;
    if (source.destroyed && !source.readableEnded) return this.fail('the body was cut off');
    // A body of HTTP/2 that is cut off says so before it ends like a whole one.
    source.on('aborted', this.onCut).on('error', this.onCut).on('close', this.onCut);
    source.on('end', this.onEnd).on('data', this.onData);
    if (source.readableEnded) this.onEnd();
  }

  /** The socket has room again. */
  drained(): void {
    if (!this.isBlocked) return;
    this.isBlocked = false;
    this.onMoved();
    if (!this.isOver) this.source.resume();
  }

  /** Lets the source go; what is left of it stays in it, paused. */
  stop(): void {
    if (this.isOver) return;
    this.isOver = true;
    if (!this.isBegun) return;
    const { source } = this;
    source.off('aborted', this.onCut).off('close', this.onCut);
    source.off('end', this.onEnd).off('data', this.onData);
    source.pause();
  }

  private readonly onData = (chunk: Buffer): void => {
    this.sent += chunk.length;
    if (this.length !== null && this.sent > this.length) return this.fail('the body is longer than was said');
    if (chunk.length === 0) return;
    const { socket } = this;
    let hasRoom: boolean;
    if (this.length !== null) hasRoom = socket.write(chunk);
    else {
      socket.cork();
      socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
      socket.write(chunk);
      hasRoom = socket.write('\r\n', 'latin1');
      socket.uncork();
    }
    this.onMoved();
    if (hasRoom) return;
    this.isBlocked = true;
    this.source.pause();
  };

  private readonly onEnd = (): void => {
    if (this.length !== null && this.sent !== this.length)
      return this.fail('the body is shorter than was said');
    if (this.length === null) this.socket.write('0\r\n\r\n', 'latin1');
    this.isDone = true;
    this.onMoved();
    this.stop();
  };

  private readonly onCut = (): void => {
    // Some streams close before they have said their end.
    if (!this.isDone) this.fail('the body was cut off');
  };

  private fail(message: string): void {
    if (this.isOver) return;
    this.stop();
    this.onFailed(new Http1Error('HTTP1_BODY', message));
  }
}
