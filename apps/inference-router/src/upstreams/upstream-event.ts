import type { Piece } from '../completions/piece.js';
import { plainText } from '../completions/plain-text.js';
import { UpstreamError } from './upstream-error.js';

export type Json = Readonly<Record<string, unknown>>;

/**
 * One event of an upstream's answer: its text as it came, and the object in it, which is only parsed when somebody asks.
 * Most are a piece of text and nothing else, which their text tells: those are never parsed.
 */
export class UpstreamEvent {
  private parsed: Json | undefined;
  private piece: Piece | null | undefined;

  /** @param text the event's data without framing; more than one line where the upstream sent several */
  constructor(private text: string | null) {}

  /** An event that did not come as one: its text is only made when somebody asks. */
  static of(json: Json): UpstreamEvent {
    const event = new UpstreamEvent(null);
    event.parsed = json;
    return event;
  }

  get data(): string {
    return (this.text ??= JSON.stringify(this.parsed));
  }

  /** The piece of text that it is and nothing else; null: its object has to be looked at. */
  plain(): Piece | null {
    if (this.piece === undefined) this.piece = this.text === null ? null : plainText(this.text);
    return this.piece;
  }

  /** @throws UpstreamError `broken` when the data is no JSON object */
  json(): Json {
    return (this.parsed ??= parseObject(this.data));
  }
}

function parseObject(text: string): Json {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
  } catch {
    // Told below.
  }
  throw new UpstreamError('broken', `an event that is no JSON object: ${text.slice(0, 200)}`);
}
