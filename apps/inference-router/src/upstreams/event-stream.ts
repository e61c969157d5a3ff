import { StringDecoder } from 'node:string_decoder';
import { createParser, type EventSourceParser } from 'eventsource-parser';
import { type Json, UpstreamEvent } from './upstream-event.js';
import { UpstreamError } from './upstream-error.js';

/** Most characters of one event; tool calls with whole files in them are long. */
const eventLimit = 32 * 1024 * 1024;

/** Makes events of the bytes of an answer, as they come. */
export interface EventReader {
  /** All that there is to come was seen: what follows is of no use. */
  readonly isOver: boolean;
  /** Takes the octets `start` to `end`, which may be overwritten after the call. @throws UpstreamError `broken` */
  feed(bytes: Buffer, start: number, end: number): void;
  /** Events that are complete and were not taken yet. @throws UpstreamError `broken` */
  take(): readonly UpstreamEvent[];
  /** Events that the end of the body completes, and those before. @throws UpstreamError `broken` */
  end(): readonly UpstreamEvent[];
}

/** The reader for an answer of a media type (lower case, without parameters). */
export const readerFor = (contentType: string): EventReader =>
  contentType === 'application/json' ? new PlainReader() : new StreamReader();

const none: readonly UpstreamEvent[] = [];

/** UTF-8 that comes in pieces of any length. */
class Text {
  // Half the time of a TextDecoder on short pieces.
  private readonly decoder = new StringDecoder('utf8');
  /** The newest piece may have ended within a character. */
  private isWithin = false;

  of(bytes: Buffer, start: number, end: number): string {
    const endsWithin = bytes[end - 1]! >= 0x80;
    // Nearly always: nothing is left over before and behind.
    if (!this.isWithin && !endsWithin) return bytes.toString('utf8', start, end);
    this.isWithin = endsWithin;
    return this.decoder.write(bytes.subarray(start, end));
  }

  rest(): string {
    return this.decoder.end();
  }
}

/**
 * Server-sent events. Robust against lines and characters split between reads, CRLF, comments and a missing last blank
 * line; over with `[DONE]`.
 */
class StreamReader implements EventReader {
  isOver = false;
  private events: UpstreamEvent[] = [];
  /** What came together is parsed together. */
  private fed = '';
  private readonly text = new Text();
  private readonly parser: EventSourceParser;

  constructor() {
    this.parser = createParser({
      maxBufferSize: eventLimit,
      onEvent: ({ data }) => {
        if (this.isOver || data === '') return;
        if (data === '[DONE]') this.isOver = true;
        else this.events.push(new UpstreamEvent(data));
      },
      onError: (error) => {
        if (error.type === 'max-buffer-size-exceeded') throw new UpstreamError('broken', error.message);
      },
    });
  }

  feed(bytes: Buffer, start: number, end: number): void {
    this.fed += this.text.of(bytes, start, end);
  }

  take(): readonly UpstreamEvent[] {
    const { fed } = this;
    this.fed = '';
    if (fed !== '') this.parser.feed(fed);
    if (this.events.length === 0) return none;
    const { events } = this;
    this.events = [];
    return events;
  }

  end(): readonly UpstreamEvent[] {
    // A host that forgets the last blank line has still sent its event.
    this.fed += `${this.text.rest()}\n\n`;
    return this.take();
  }
}

/** A plain JSON answer, of a host that ignores `stream`: one event in the shape of a stream's. */
class PlainReader implements EventReader {
  readonly isOver = false;
  private readonly text = new Text();
  private body = '';
  private size = 0;

  feed(bytes: Buffer, start: number, end: number): void {
    this.size += end - start;
    if (this.size > eventLimit)
      throw new UpstreamError('broken', `an answer of more than ${eventLimit} bytes`);
    this.body += this.text.of(bytes, start, end);
  }

  take(): readonly UpstreamEvent[] {
    return none;
  }

  end(): readonly UpstreamEvent[] {
    const plain = new UpstreamEvent(this.body + this.text.rest());
    const { choices } = plain.json();
    const [choice] = Array.isArray(choices) ? (choices as Json[]) : [];
    if (!choice) return [plain];
    return [UpstreamEvent.of({ ...plain.json(), choices: [{ ...choice, delta: choice['message'] ?? {} }] })];
  }
}
