import { broken } from './errors.js';
import { hasToken } from './fields.js';

/** How a body ends: at once, after so many bytes, with its last chunk, or with the connection. */
export type BodyEnd = 'none' | 'length' | 'chunked' | 'close';

/** What the fields of an answer say about its body and about the connection. */
export class Framing {
  end: BodyEnd = 'none';
  /** Bytes, where the end is by length. */
  length = 0;
  /** The other side lets the connection go on after this answer. */
  isKept = false;
  /** Seconds that the other side keeps an idle connection, by `Keep-Alive`; null: not said. */
  keepSeconds: number | null = null;
  /** The last value of `Keep-Alive`, which one connection mostly repeats. */
  private keepValue = '';
  private keepMeaning: number | null = null;

  /**
   * Reads the fields that frame an answer (RFC 9112 section 6.3).
   * @param isHead the request was HEAD
   * @throws Http1Error HTTP1_PROTOCOL where two readers could see two ends
   */
  read(minor: number, status: number, fields: readonly string[], isHead: boolean): void {
    let length = -1;
    let isChunked = false;
    let says = minor > 0 ? 'keep' : 'close';
    this.keepSeconds = null;
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at]!;
      // By length first: few fields of many are looked at.
      switch (name.length) {
        case 10: {
          const word = name.toLowerCase();
          const value = fields[at + 1]!;
          if (word === 'connection') {
            // What nearly all say, in nearly all answers.
            if (value === 'keep-alive') says = says === 'close' ? 'keep' : says;
            else if (hasToken(value, 'close')) says = 'closed';
            else if (says === 'close' && hasToken(value, 'keep-alive')) says = 'keep';
          } else if (word === 'keep-alive') this.keepSeconds = this.secondsOf(value);
          break;
        }
        case 14:
          if (name.toLowerCase() === 'content-length') {
            // Equal doubles are refused too: who sends them is wrong about more than that.
            if (length >= 0) throw broken('there is more than one Content-Length');
            length = lengthOf(fields[at + 1]!);
          }
          break;
        case 17:
          if (name.toLowerCase() === 'transfer-encoding') {
            if (isChunked || fields[at + 1]!.toLowerCase() !== 'chunked')
              throw broken('there is a transfer coding other than chunked');
            isChunked = true;
          }
          break;
        default:
      }
    }
    if (isChunked && length >= 0) throw broken('there are both Transfer-Encoding and Content-Length');
    this.isKept = says === 'keep';
    this.length = 0;
    if (isHead || status === 204 || status === 304 || status < 200) this.end = 'none';
    else if (isChunked) {
      this.end = 'chunked';
      // HTTP/1.0 has no codings: read as meant, but the next answer is not looked for behind it (RFC 9112 section 6.1).
      if (minor === 0) this.isKept = false;
    } else if (length < 0) {
      this.end = 'close';
      this.isKept = false;
    } else {
      this.end = length === 0 ? 'none' : 'length';
      this.length = length;
    }
  }

  private secondsOf(value: string): number | null {
    if (value === this.keepValue) return this.keepMeaning;
    const match = /(?:^|[,\s])timeout\s*=\s*"?(\d{1,6})/i.exec(value);
    this.keepValue = value;
    return (this.keepMeaning = match ? Number(match[1]) : null);
  }
}

/** Only digits, and no more than fit exactly into a number. */
function lengthOf(value: string): number {
  if (!/^\d{1,15}$/.test(value)) throw broken('the Content-Length is none');
  return Number(value);
}
