import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Provider } from '../catalogue/catalogue.js';
import type { Deadlines } from './deadlines.js';
import { Deadline } from './deadlines.js';
import { type EventReader, readerFor } from './event-stream.js';
import { Refusal } from './refusal.js';
import type { AnswerTaker, Sending } from './upstream.js';
import { UpstreamError } from './upstream-error.js';

/** What the end of a body may take after `[DONE]`, milliseconds. */
const endLimit = 1_000;

/**
 * One request and its answer on undici's own interface, without a stream or a promise in between: what one read of the
 * connection brings goes on at once and together. A taker that falls behind pauses the connection.
 */
export class Exchange implements Dispatcher.DispatchHandler, Sending {
  private controller: Dispatcher.DispatchController | undefined;
  private reader: EventReader | undefined;
  private refusal: Refusal | undefined;
  private parts: Buffer[] = [];
  private isQueued = false;
  private isPaused = false;
  private isOver = false;
  private ending: Deadline | undefined;

  constructor(
    private readonly provider: Provider,
    private readonly taker: AnswerTaker,
    private readonly deadlines: Deadlines,
  ) {}

  /** Ends request and answer at once, in whichever phase they are. */
  cancel(reason: Error): void {
    if (this.isOver) return;
    this.fail(reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.isOver) controller.abort(new Error('the answer is not wanted any more'));
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200 || this.isOver) return;
    if (status !== 200) {
      this.refusal = new Refusal(this.provider, status, String(headers['retry-after'] ?? ''));
      this.endIn(Refusal.timeLimit);
      return;
    }
    const type = String(headers['content-type'] ?? '');
    this.reader = readerFor(type.split(';', 1)[0]!.trim().toLowerCase());
  }

  onResponseData(_: Dispatcher.DispatchController, part: Buffer): void {
    if (this.refusal) {
      if (this.refusal.add(part)) this.refuse(this.refusal);
      return;
    }
    if (this.isOver) return;
    this.parts.push(part);
    // One read of the connection may hold many parts, each a call of this; they go on together after the last.
    if (this.isQueued || this.isPaused) return;
    this.isQueued = true;
    queueMicrotask(() => this.flush());
  }

  onResponseEnd(): void {
    this.flush();
    this.forgetEnd();
    if (this.refusal) return this.refuse(this.refusal);
    if (this.isOver) return;
    try {
      void this.pass(this.reader!.end())?.catch(() => undefined);
      this.succeed();
      this.forgetEnd();
    } catch (error) {
      this.fail(error as Error);
    }
  }

  onResponseError(_: Dispatcher.DispatchController | null, cause: Error): void {
    // What arrived before is given out first.
    this.flush();
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

  private flush(): void {
    this.isQueued = false;
    const { parts } = this;
    if (this.isOver || parts.length === 0 || !this.reader) return;
    this.parts = [];
    try {
      const wait = this.pass(this.reader.feed(parts.length === 1 ? parts[0]! : Buffer.concat(parts)));
      if (this.reader.isOver) this.succeed();
      else if (wait) this.pauseUntil(wait);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private pauseUntil(wait: Promise<void>): void {
    this.isPaused = true;
    this.controller?.pause();
    wait.then(
      () => {
        this.isPaused = false;
        this.controller?.resume();
        this.flush();
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
    this.parts = [];
    this.forgetEnd();
    this.controller?.abort(error);
    this.taker.failed(error);
  }

  private endIn(limit: number): void {
    this.ending = new Deadline(limit, () => {
      if (this.refusal && !this.isOver) this.refuse(this.refusal);
      else this.controller?.abort(new Error('no end after the last event'));
    });
    this.deadlines.watch(this.ending);
  }

  private forgetEnd(): void {
    if (this.ending) this.deadlines.forget(this.ending);
  }
}
