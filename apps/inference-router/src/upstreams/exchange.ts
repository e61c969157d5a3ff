import type { AnswerHandler, Http1Connection, Http1Pool, Http1Request } from '@nebo/http1';
import type { Provider } from '../catalogue/catalogue.js';
import type { Deadlines } from './deadlines.js';
import { Deadline } from './deadlines.js';
import { type EventReader, readerFor } from './event-stream.js';
import { Refusal } from './refusal.js';
import type { AnswerTaker, Sending } from './upstream.js';
import { UpstreamError } from './upstream-error.js';
import type { VendorHost } from './vendor-host.js';

/** What the end of a body may take after `[DONE]`, milliseconds. */
const endLimit = 1_000;

/**
 * One request and its answer, without a stream or a promise in between: what one read of the connection brings goes on at
 * once and together. A taker that falls behind pauses the connection.
 */
export class Exchange implements AnswerHandler, Sending {
  /** Null before the request and after the end of its answer: the connection is somebody else's then. */
  private connection: Http1Connection | null = null;
  private reader: EventReader | undefined;
  private refusal: Refusal | undefined;
  private isPaused = false;
  private isOver = false;
  private ending: Deadline | undefined;

  constructor(
    private readonly provider: Provider,
    private readonly taker: AnswerTaker,
    private readonly deadlines: Deadlines,
  ) {}

  /** Sends the request; whatever becomes of it, the taker is told. */
  begin(pool: Http1Pool<VendorHost>, host: VendorHost, request: Http1Request): void {
    try {
      this.connection = pool.send(host, request, this);
    } catch (error) {
      // What cannot be a request, by what the operator's file says.
      this.onError(error as Error);
    }
  }

  /** Ends request and answer at once, in whichever phase they are. */
  cancel(reason: Error): void {
    if (this.isOver) return;
    this.fail(reason);
  }

  onHead(status: number, _reason: string, fields: string[]): void {
    if (status !== 200) {
      this.refusal = new Refusal(this.provider, status, valueOf(fields, 'retry-after'));
      this.endIn(Refusal.timeLimit);
      return;
    }
    const type = valueOf(fields, 'content-type');
    this.reader = readerFor(type.split(';', 1)[0]!.trim().toLowerCase());
  }

  onData(bytes: Buffer, start: number, end: number): void {
    if (this.refusal) {
      if (this.refusal.add(Buffer.from(bytes.subarray(start, end)))) this.refuse(this.refusal);
      return;
    }
    if (this.isOver) return;
    try {
      this.reader!.feed(bytes, start, end);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  onQuiet(): void {
    const { reader } = this;
    // What TLS had decrypted already comes behind a pause, too.
    if (this.isOver || this.isPaused || !reader) return;
    try {
      const wait = this.pass(reader.take());
      if (reader.isOver) this.succeed();
      else if (wait) this.pauseUntil(wait);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  onEnd(): void {
    this.connection = null;
    this.forgetEnd();
    if (this.refusal) return this.refuse(this.refusal);
    if (this.isOver) return;
    try {
      void this.pass(this.reader!.end())?.catch(() => undefined);
      this.isOver = true;
      this.taker.ended();
    } catch (error) {
      this.fail(error as Error);
    }
  }

  onError(cause: Error): void {
    // What arrived before is given out first.
    this.isPaused = false;
    this.onQuiet();
    this.connection = null;
    this.forgetEnd();
    if (this.isOver) return;
    if (this.refusal) return this.refuse(this.refusal);
    this.isOver = true;
    this.taker.failed(
      this.reader
        ? new UpstreamError('broken', `the answer broke off: ${cause.message}`, { cause })
        : new UpstreamError('unreachable', `${this.provider.name}: ${cause.message}`, { cause }),
    );
  }

  private pauseUntil(wait: Promise<void>): void {
    this.isPaused = true;
    this.connection?.pause();
    wait.then(
      () => {
        this.isPaused = false;
        this.connection?.resume();
        this.onQuiet();
      },
      (error: Error) => this.cancel(error),
    );
  }

  private pass(events: Parameters<AnswerTaker['events']>[0]): Promise<void> | void {
    return events.length > 0 ? this.taker.events(events) : undefined;
  }

  /** All has been seen. Only the end of the body is missing: reading it lets the connection be used again. */
  private succeed(): void {
    this.isOver = true;
    this.endIn(endLimit);
    this.taker.ended();
  }

  private refuse(refusal: Refusal): void {
    if (this.isOver) return;
    this.fail(refusal.error());
  }

  private fail(error: Error): void {
    this.isOver = true;
    this.abort();
    this.taker.failed(error);
  }

  private abort(): void {
    const { connection } = this;
    this.connection = null;
    this.forgetEnd();
    connection?.abort();
  }

  private endIn(limit: number): void {
    this.ending = new Deadline(limit, () => {
      if (this.refusal && !this.isOver) this.refuse(this.refusal);
      else this.abort();
    });
    this.deadlines.watch(this.ending);
  }

  private forgetEnd(): void {
    if (this.ending) this.deadlines.forget(this.ending);
  }
}

/** The value of the first field of a name; '' without one. @param name in lower case */
function valueOf(fields: readonly string[], name: string): string {
  for (let at = 0; at < fields.length; at += 2) {
    const field = fields[at]!;
    if (field.length === name.length && field.toLowerCase() === name) return fields[at + 1]!;
  }
  return '';
}
