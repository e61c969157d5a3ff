import { once } from 'node:events';
import type { ServerResponse } from 'node:http';

/**
 * A stream of server-sent events to a client. Its head leaves with the first event, so that a request that fails before
 * gets a plain error; when nothing comes for a while, the head and comments keep the connection alive.
 */
export class EventReply {
  private timer: NodeJS.Timeout | undefined;
  private written = Date.now();

  /**
   * @param keepAlive milliseconds of silence after which `beat` is sent
   * @param beat an event, or a comment, that clients pass over
   */
  constructor(
    private readonly raw: ServerResponse,
    private readonly headers: Readonly<Record<string, string>>,
    private readonly keepAlive: number,
    private readonly beat: string,
  ) {
    this.timer = setInterval(() => this.keepOpen(), Math.max(10, keepAlive / 4)).unref();
  }

  /** Has anything been sent? From then on errors are events. */
  get begun(): boolean {
    return this.raw.headersSent;
  }

  /** Sends text; resolves when the client takes more, or is gone. */
  async write(text: string): Promise<void> {
    if (text === '' || this.raw.destroyed || this.raw.writableEnded) return;
    this.begin();
    this.written = Date.now();
    if (this.raw.write(text)) return;
    // Reading no faster than the client does keeps memory flat.
    const wait = new AbortController();
    await Promise.race([
      once(this.raw, 'drain', { signal: wait.signal }),
      once(this.raw, 'close', { signal: wait.signal }),
    ]).catch(() => undefined);
    wait.abort();
    this.written = Date.now();
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
    clearInterval(this.timer);
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
    if (
      Date.now() - this.written < this.keepAlive ||
      this.raw.destroyed ||
      this.raw.writableEnded ||
      this.raw.writableNeedDrain
    )
      return;
    this.begin();
    this.written = Date.now();
    this.raw.write(this.beat);
  }
}
