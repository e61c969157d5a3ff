import type { ServerResponse } from 'node:http';
import { Deadline, type Deadlines } from '../upstreams/deadlines.js';

/**
 * A stream of server-sent events to a client. Its head leaves with the first event, so that a request that fails before
 * gets a plain error; when nothing comes for a while, the head and comments keep the connection alive.
 */
export class EventReply {
  /** Passes when nothing was sent for a while. */
  private silence: Deadline;

  /**
   * @param keepAlive milliseconds of silence after which `beat` is sent
   * @param clientIdle milliseconds in which a client that has more to read may take nothing; then it counts as gone
   * @param beat an event, or a comment, that clients pass over
   */
  constructor(
    private readonly raw: ServerResponse,
    private readonly headers: Readonly<Record<string, string>>,
    keepAlive: number,
    private readonly clientIdle: number,
    private readonly beat: string,
    private readonly deadlines: Deadlines,
  ) {
    this.silence = new Deadline(keepAlive, () => this.keepOpen());
    deadlines.watch(this.silence);
  }

  /** Has anything been sent? From then on errors are events. */
  get begun(): boolean {
    return this.raw.headersSent;
  }

  /** Sends text. @returns nothing, or what resolves when the client takes more, or is gone */
  write(text: string): Promise<void> | void {
    const { raw } = this;
    if (text === '' || raw.destroyed || raw.writableEnded) return;
    this.begin();
    this.silence.touch();
    if (raw.write(text)) return;
    // Nobody else listens, so that the connection ends with it; a write that makes headway does not count as silence.
    raw.setTimeout(this.clientIdle);
    // Reading no faster than the client does keeps memory flat.
    return new Promise((resolve) => {
      const done = () => {
        raw.setTimeout(0);
        raw.off('drain', done);
        raw.off('close', done);
        this.silence.touch();
        resolve();
      };
      raw.on('drain', done);
      raw.on('close', done);
    });
  }

  /** Sends the last text and ends. */
  end(text: string): void {
    this.close();
    if (this.raw.destroyed || this.raw.writableEnded) return;
    this.begin();
    this.raw.end(text);
  }

  /** Ends the heartbeat; for a request that is answered otherwise. */
  close(): void {
    this.deadlines.forget(this.silence);
  }

  private begin(): void {
    if (this.raw.headersSent) return;
    this.raw.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Proxies in front must not gather events.
      'x-accel-buffering': 'no',
      ...this.headers,
    });
  }

  private keepOpen(): void {
    if (this.raw.destroyed || this.raw.writableEnded) return;
    // Whoever takes nothing needs no more of it.
    if (!this.raw.writableNeedDrain) {
      this.begin();
      this.raw.write(this.beat);
    }
    this.silence.touch();
    this.deadlines.watch(this.silence);
  }
}
