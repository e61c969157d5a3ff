import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';

/** Bytes that may wait for their reader before the connection is told to pause. */
const highWater = 256 * 1024;

/**
 * One request and its answer on undici's own interface: no stream object in between. All that came since the last read is
 * given out at once, so that events which arrive together leave together; a reader that falls behind pauses the
 * connection. Aborting the signal closes the connection at once, in whichever phase it is.
 */
export class Exchange implements Dispatcher.DispatchHandler, AsyncIterableIterator<Uint8Array> {
  /** Status of the answer. Rejects when there is none. */
  readonly head: Promise<number>;
  private headers: IncomingHttpHeaders = {};
  private controller: Dispatcher.DispatchController | undefined;
  private parts: Buffer[] = [];
  private waiting = 0;
  private isPaused = false;
  private isOver = false;
  private failure: Error | undefined;
  private wake: (() => void) | undefined;
  private resolveHead!: (status: number) => void;
  private rejectHead!: (error: Error) => void;
  private readonly onAbort = () => this.abort(reasonOf(this.signal));

  constructor(private readonly signal: AbortSignal) {
    this.head = new Promise((resolve, reject) => {
      this.resolveHead = resolve;
      this.rejectHead = reject;
    });
    signal.addEventListener('abort', this.onAbort, { once: true });
  }

  header(name: string): string {
    return String(this.headers[name] ?? '');
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.failure) controller.abort(this.failure);
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    this.headers = headers;
    this.resolveHead(status);
  }

  onResponseData(controller: Dispatcher.DispatchController, part: Buffer): void {
    this.parts.push(part);
    this.waiting += part.length;
    if (this.waiting > highWater && !this.isPaused) {
      this.isPaused = true;
      controller.pause();
    }
    this.wake?.();
  }

  onResponseEnd(): void {
    this.isOver = true;
    this.signal.removeEventListener('abort', this.onAbort);
    this.wake?.();
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.fail(error);
  }

  async next(): Promise<IteratorResult<Uint8Array>> {
    if (this.parts.length === 0 && !this.isOver) {
      await new Promise<void>((resolve) => (this.wake = resolve));
      this.wake = undefined;
    }
    // What has arrived before a break is given out first.
    if (this.parts.length > 0) return { done: false, value: this.take() };
    if (this.failure) throw this.failure;
    return { done: true, value: undefined };
  }

  /** The reader leaves: what is still under way is of no use. */
  async return(): Promise<IteratorResult<Uint8Array>> {
    if (!this.isOver) this.abort(new Error('the rest of the answer is not wanted'));
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  private take(): Uint8Array {
    const { parts } = this;
    this.parts = [];
    this.waiting = 0;
    if (this.isPaused) {
      this.isPaused = false;
      this.controller?.resume();
    }
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  private abort(reason: Error): void {
    this.parts = [];
    this.fail(reason);
    this.controller?.abort(reason);
  }

  private fail(error: Error): void {
    this.failure ??= error;
    this.isOver = true;
    this.signal.removeEventListener('abort', this.onAbort);
    this.rejectHead(this.failure);
    this.wake?.();
  }
}

const reasonOf = ({ reason }: AbortSignal): Error =>
  reason instanceof Error ? reason : new Error('aborted', { cause: reason });
