import { StringDecoder } from 'node:string_decoder';
import { type Redactor } from './redact.js';

/** Longest line in UTF-16 units; longer ones are split (one SSE line must stay far below 1 MiB). */
export const lineCap = 64 * 1024;

/**
 * Turns the output of a process into clean log lines: UTF-8 across chunks, every kind of line end (a lone CR would end
 * a line of the event stream), NUL removed (PostgreSQL has no place for it), secrets masked, colours kept.
 */
export class LineSplitter {
  private readonly decoder = new StringDecoder('utf8');
  private rest = '';
  private afterReturn = false;

  constructor(
    private readonly redactor: Redactor,
    private readonly emit: (line: string) => void,
    private readonly cap = lineCap,
  ) {}

  push(chunk: Buffer): void {
    this.text(this.decoder.write(chunk));
  }

  /** The process has ended: what stands behind the last line end is a line too. */
  end(): void {
    this.text(this.decoder.end());
    if (this.rest !== '') this.line(this.rest);
    this.rest = '';
  }

  private text(text: string): void {
    let fresh = text;
    if (fresh === '') return;
    // "\r\n" may come in two chunks and is one line end.
    if (this.afterReturn && fresh.startsWith('\n')) fresh = fresh.slice(1);
    if (fresh !== '') this.afterReturn = fresh.endsWith('\r');
    const parts = fresh.split(/\r\n|\n|\r/);
    parts[0] = this.rest + parts[0]!;
    this.rest = parts.pop()!;
    for (const part of parts) this.line(part);
    if (this.rest.length >= this.cap + this.redactor.reach)
      this.rest = this.split(this.rest, this.redactor.reach);
  }

  private line(text: string): void {
    const last = this.split(text, 0);
    this.emit(this.clean(last));
  }

  /** Emits pieces of at most `cap` while more than `cap + keep` is there; returns what is left. */
  private split(text: string, keep: number): string {
    let left = text;
    while (left.length > this.cap + keep) {
      let cut = this.redactor.safeCut(left, this.cap);
      // Never between the halves of a surrogate pair.
      const code = left.charCodeAt(cut - 1);
      if (code >= 0xd800 && code < 0xdc00) cut += 1;
      this.emit(this.clean(left.slice(0, cut)));
      left = left.slice(cut);
    }
    return left;
  }

  private clean(text: string): string {
    return this.redactor.redact(text.replaceAll('\0', ''));
  }
}
