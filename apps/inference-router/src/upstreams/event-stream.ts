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
  /** Events that these bytes complete. @throws UpstreamError `broken` */
  feed(bytes: Buffer): readonly UpstreamEvent[];
  /** Events that the end of the body completes. @throws UpstreamError `broken` */
  end(): readonly UpstreamEvent[];
}

/** The reader for an answer of a media type (lower case, without parameters). */
export const readerFor = (contentType: string): EventReader =>
  contentType === 'application/json' ? new PlainReader() : new StreamReader();

const none: readonly UpstreamEvent[] = [];

/**
 * Server-sent events. Robust against lines and characters split between reads, CRLF, comments and a missing last blank
 * line; over with `[DONE]`.
 */
class StreamReader implements EventReader {
  isOver = false;
  private events: UpstreamEvent[] = [];
  // Half the time of a TextDecoder on short pieces.
  private readonly decoder = new StringDecoder('utf8');
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

  feed(bytes: Buffer): readonly UpstreamEvent[] {
    return this.parse(this.decoder.write(bytes));
  }

  end(): readonly UpstreamEvent[] {
    // A host that forgets the last blank line has still sent its event.
    return this.parse(`${this.decoder.end()}\n\n`);
  }

  private parse(text: string): readonly UpstreamEvent[] {
    this.parser.feed(text);
    if (this.events.length === 0) return none;
    const { events } = this;
    this.events = [];
    return events;
  }
}

/** A plain JSON answer, of a host that ignores `stream`: one event in the shape of a stream's. */
class PlainReader implements EventReader {
  readonly isOver = false;
  private readonly parts: Buffer[] = [];
  private size = 0;

  feed(bytes: Buffer): readonly UpstreamEvent[] {
    this.size += bytes.length;
    if (this.size > eventLimit)
      throw new UpstreamError('broken', `an answer of more than ${eventLimit} bytes`);
    this.parts.push(bytes);
    return none;
  }

  end(): readonly UpstreamEvent[] {
    const plain = new UpstreamEvent(Buffer.concat(this.parts).toString('utf8'));
    const { choices } = plain.json();
    const [choice] = Array.isArray(choices) ? (choices as Json[]) : [];
    if (!choice) return [plain];
    const streamed = { ...plain.json(), choices: [{ ...choice, delta: choice['message'] ?? {} }] };
    return [new UpstreamEvent(JSON.stringify(streamed))];
  }
}
