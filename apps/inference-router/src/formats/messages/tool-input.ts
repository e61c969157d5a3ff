import { rawField } from '../call-arguments.js';

/** Arguments that are longer are told as they come: nobody wants to wait for a whole file. */
const liveFrom = 256;

const isBlank = (code: number): boolean => code === 0x20 || (code >= 0x09 && code <= 0x0d);

/**
 * The arguments of one call, in pieces. The format wants an object, and clients that put pieces together break on what is
 * none. So short arguments are told when they are whole and checked; of long ones everything is told at once but the last
 * brace. What turns out to be no object is put into one whole, under `raw_arguments`: then the tool's own check refuses
 * it and the model sees why.
 */
export class ToolInput {
  /** Joined at the end only: looking into a growing string again and again would copy it each time. */
  private readonly parts: string[] = [];
  /** What was not told yet, up to the last brace. */
  private held = '';
  /** What came after the last brace. */
  private tail = '';
  private isTold = false;
  private isObject: boolean | null = null;
  private hasMembers = false;
  private depth = 0;
  private isString = false;
  private isEscaped = false;
  private isComplete = false;

  push(text: string): void {
    this.parts.push(text);
    if (this.isComplete) {
      this.tail += text;
      return;
    }
    let end = 0;
    while (end < text.length && !this.isComplete) this.scan(text.charCodeAt(end++));
    this.held += this.isComplete ? text.slice(0, end - 1) : text;
    this.tail = text.slice(end);
  }

  /** Is it complete, so that another block may be told? */
  get isWhole(): boolean {
    return this.isComplete;
  }

  /** What may be told now, as a piece of JSON; may be empty. */
  take(): string {
    if (!this.isObject) return '';
    // One that is whole already can be checked first.
    if (!this.isTold && (this.isComplete || this.held.length < liveFrom)) return '';
    const { held } = this;
    this.held = '';
    this.isTold = true;
    return held;
  }

  /** The rest. After this nothing comes any more. */
  end(): string {
    const raw = this.parts.join('');
    if (!this.isTold) return objectOf(raw) ? raw.trim() : JSON.stringify(this.value());
    // The ceiling cut it: left as it is, like the text of an answer that is cut.
    if (!this.isComplete) return this.held;
    if (this.tail.trim() === '') return `${this.held}}`;
    return `${this.held}${this.hasMembers ? ',' : ''}${JSON.stringify(rawField)}:${JSON.stringify(raw)}}`;
  }

  /** All of it as an object. */
  value(): Record<string, unknown> {
    const raw = this.parts.join('');
    return objectOf(raw) ?? (raw.trim() === '' ? {} : { [rawField]: raw });
  }

  private scan(code: number): void {
    if (this.isObject === null) {
      if (isBlank(code)) return;
      this.isObject = code === 0x7b;
    }
    if (this.isString) {
      if (this.isEscaped) this.isEscaped = false;
      else if (code === 0x5c) this.isEscaped = true;
      else if (code === 0x22) this.isString = false;
    } else if (code === 0x22) this.isString = this.hasMembers = true;
    else if (code === 0x7b || code === 0x5b) this.depth += 1;
    else if (code === 0x7d || code === 0x5d) {
      this.depth -= 1;
      this.isComplete = this.depth <= 0;
    }
  }
}

function objectOf(raw: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(raw);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
