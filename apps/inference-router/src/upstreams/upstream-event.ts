import { UpstreamError } from './upstream-error.js';

export type Json = Readonly<Record<string, unknown>>;

/**
 * One event of an upstream's answer: its text as it came, and the object in it, which is only parsed when somebody asks.
 * Whoever can go by the text alone (`AnswerReader` for plain pieces) spares itself the parsing.
 */
export class UpstreamEvent {
  private parsed: Json | undefined;

  /** @param data the event's data without framing; more than one line where the upstream sent several */
  constructor(readonly data: string) {}

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
