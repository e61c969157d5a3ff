import { StringDecoder } from 'node:string_decoder';
import { createParser } from 'eventsource-parser';
import { type Json, UpstreamEvent } from './upstream-event.js';
import { type UpstreamAnswer, UpstreamError } from './upstream.js';

export { type Json, UpstreamEvent } from './upstream-event.js';

/** Most characters of one event; tool calls with whole files in them are long. */
const eventLimit = 32 * 1024 * 1024;
/** What the end of a body may take after `[DONE]`, milliseconds. */
const endLimit = 1_000;

/**
 * The events of an upstream's answer, all of one read together, so that they can go on in one write. Ends at `[DONE]` or
 * with the answer. Robust against lines and characters split between reads, CRLF, comments and a missing last blank line;
 * a plain JSON answer of a host that ignores `stream` comes out as one event in the shape of a stream's.
 * @param idle milliseconds between two reads; 0: no limit
 * @param abort ends the upstream request; the read that is under way must fail then
 * @throws UpstreamError `broken` when the answer breaks off or is not what it should be, `timeout`
 */
export async function* readEvents(
  answer: UpstreamAnswer,
  idle: number,
  abort: (reason: Error) => void,
): AsyncGenerator<UpstreamEvent[]> {
  const reads = new Reads(answer.body[Symbol.asyncIterator](), idle, abort);
  if (answer.contentType === 'application/json') {
    yield [await readPlain(reads)];
    return;
  }
  let events: UpstreamEvent[] = [];
  let done = false;
  const parser = createParser({
    maxBufferSize: eventLimit,
    onEvent: ({ data }) => {
      if (done || data === '') return;
      if (data === '[DONE]') done = true;
      else events.push(new UpstreamEvent(data));
    },
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') throw new UpstreamError('broken', error.message);
    },
  });
  // Half the time of a TextDecoder on short pieces.
  const decoder = new StringDecoder('utf8');
  try {
    while (!done) {
      const bytes = await reads.next();
      // A host that forgets the last blank line has still sent its event.
      parser.feed(bytes === null ? `${decoder.end()}\n\n` : decoder.write(bytes as Buffer));
      if (events.length > 0) {
        const batch = events;
        events = [];
        yield batch;
      }
      if (bytes === null) return;
    }
  } finally {
    // After [DONE] only the end of the body is missing: reading it lets the connection be used again.
    if (done) void reads.finish();
    else reads.leave();
  }
}

/** Reads of a body with the limit between them, on one timer for all. */
class Reads {
  private readonly timer: NodeJS.Timeout | undefined;
  private isReading = false;
  private late: UpstreamError | undefined;

  constructor(
    private readonly source: AsyncIterator<Uint8Array>,
    idle: number,
    private readonly abort: (reason: Error) => void,
  ) {
    if (idle > 0) this.timer = setTimeout(() => this.tooLate(idle), idle).unref();
  }

  /** The next bytes; null at the end. The limit runs only while somebody waits: a slow client is not the upstream's fault. */
  async next(): Promise<Uint8Array | null> {
    this.isReading = true;
    this.timer?.refresh();
    try {
      const read = await this.source.next();
      if (!read.done) return read.value;
      clearTimeout(this.timer);
      return null;
    } catch (cause) {
      clearTimeout(this.timer);
      if (this.late) throw this.late;
      if (cause instanceof UpstreamError) throw cause;
      throw new UpstreamError('broken', `the answer broke off: ${(cause as Error).message}`, { cause });
    } finally {
      this.isReading = false;
    }
  }

  /** Nobody wants the rest. */
  leave(): void {
    clearTimeout(this.timer);
    void this.source.return?.()?.catch(() => undefined);
  }

  /** Reads what little is left, for a moment at most. */
  async finish(): Promise<void> {
    clearTimeout(this.timer);
    const limit = setTimeout(() => this.abort(new Error('no end after the last event')), endLimit);
    try {
      while (!(await this.source.next()).done);
    } catch {
      // The answer was complete before.
    } finally {
      clearTimeout(limit);
    }
  }

  private tooLate(idle: number): void {
    if (!this.isReading) return;
    this.late = new UpstreamError('timeout', `between two events: nothing in ${idle / 1_000} s`);
    this.abort(this.late);
  }
}

async function readPlain(reads: Reads): Promise<UpstreamEvent> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const bytes = await reads.next();
    if (bytes === null) return asEvent(Buffer.concat(parts).toString('utf8'));
    size += bytes.length;
    if (size > eventLimit) {
      reads.leave();
      throw new UpstreamError('broken', `an answer of more than ${eventLimit} bytes`);
    }
    parts.push(bytes);
  }
}

function asEvent(text: string): UpstreamEvent {
  const plain = new UpstreamEvent(text);
  const { choices } = plain.json();
  const [choice] = Array.isArray(choices) ? (choices as Json[]) : [];
  if (!choice) return plain;
  return new UpstreamEvent(
    JSON.stringify({ ...plain.json(), choices: [{ ...choice, delta: choice['message'] ?? {} }] }),
  );
}
