import { broken, Http1Error } from './errors.js';
import { readFields } from './fields.js';
import { Framing } from './framing.js';
import { CR, HEX, isAll, LF, SEMICOLON, SPACE, TEXT } from './octets.js';

/** Who is told of an answer while it is read. */
export interface AnswerSink {
  /** An interim answer (100, 102, 103, …). */
  onInterim(status: number): void;
  /** @param fields name, value, name, …: Latin-1, as sent */
  onHead(status: number, reason: string, fields: string[]): void;
  /** @param bytes the octets `start` to `end` are of the body; they are overwritten after the call */
  onData(bytes: Buffer, start: number, end: number): void;
}

/** Bounds of what an answer may hold beside its body. */
export interface AnswerLimits {
  /** Bytes of the head, and of the trailers. */
  headBytes: number;
  /** Fields of the head, and of the trailers. */
  fields: number;
  /** Bytes of all extensions of chunks together. */
  extensionBytes: number;
}

export const answerLimits: Readonly<AnswerLimits> = {
  headBytes: 64 * 1024,
  fields: 1_000,
  extensionBytes: 16 * 1024,
};

/** Interim answers before the one that counts. */
const MAX_INTERIM = 32;
const PREFIX = Buffer.from('HTTP/1.');
const token = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
/** Extensions of a chunk without white space, which only old senders put there (RFC 9112 section 7.1.1). */
const EXTENSIONS = new RegExp(
  `^(?:;${token}(?:=(?:${token}|"(?:[\\t \\x21\\x23-\\x5b\\x5d-\\x7e\\x80-\\xff]|\\\\[\\t \\x21-\\x7e\\x80-\\xff])*"))?)*$`,
);

type State =
  | 'head'
  | 'length'
  | 'close'
  | 'size'
  | 'extension'
  | 'size-lf'
  | 'chunk'
  | 'chunk-cr'
  | 'chunk-lf'
  | 'trailers'
  | 'done';

/**
 * Reads one answer of HTTP/1.1 after the other from octets as they come (RFC 9112). Strict: what two readers could take for two
 * things is refused. Nothing is read twice, however small the pieces are.
 */
export class AnswerParser {
  /** What the head said of the body and the connection. */
  readonly framing = new Framing();
  /** After the end: name, value, … of the trailer fields. */
  trailers: string[] = [];
  private state: State = 'done';
  private isHead = false;
  private interim = 0;
  /** How much of CR LF CR LF was just read. */
  private match = 0;
  /** A head that came in pieces. */
  private held: Buffer | null = null;
  private heldBytes = 0;
  /** Bytes that are left of the body or of the chunk. */
  private left = 0;
  private digits = 0;
  private extension = '';
  private extensionBytes = 0;

  constructor(
    private readonly sink: AnswerSink,
    private readonly limits: AnswerLimits = answerLimits,
  ) {}

  /** Whether the answer has been read to its end. */
  get isDone(): boolean {
    return this.state === 'done';
  }

  /** Makes ready for an answer. @param isHead the request is HEAD */
  begin(isHead: boolean): void {
    this.isHead = isHead;
    this.interim = 0;
    this.extensionBytes = 0;
    if (this.trailers.length > 0) this.trailers = [];
    this.look('head', 0);
  }

  /**
   * Reads octets until the end of the answer.
   * @returns where it stopped: `end`, or behind the answer
   * @throws Http1Error HTTP1_PROTOCOL; then, nothing can be read any more
   */
  read(bytes: Buffer, at: number, end: number): number {
    while (at < end && this.state !== 'done') {
      switch (this.state) {
        case 'head':
        case 'trailers':
          at = this.lines(bytes, at, end);
          break;
        case 'close':
          this.sink.onData(bytes, at, end);
          return end;
        case 'length':
        case 'chunk': {
          const size = Math.min(this.left, end - at);
          this.left -= size;
          if (this.left === 0) this.state = this.state === 'chunk' ? 'chunk-cr' : 'done';
          this.sink.onData(bytes, at, at + size);
          at += size;
          break;
        }
        default:
          this.between(bytes[at]!);
          at += 1;
      }
    }
    return at;
  }

  /**
   * The other side sends no more.
   * @throws Http1Error HTTP1_CLOSED where the answer has not come to its end
   */
  finish(): void {
    if (this.state === 'close') this.state = 'done';
    if (this.state !== 'done')
      throw new Http1Error('HTTP1_CLOSED', 'the connection ended before the answer did');
  }

  /** Lines up to an empty one. @param match 2 where the first may be the empty one */
  private look(state: 'head' | 'trailers', match: 0 | 2): void {
    this.state = state;
    this.match = match;
    this.held = null;
    this.heldBytes = 0;
  }

  private lines(bytes: Buffer, begin: number, end: number): number {
    let { match } = this;
    let at = begin;
    while (at < end && match < 4) {
      const octet = bytes[at]!;
      at += 1;
      if (octet > CR) match = 0;
      else if (octet === CR) match = match === 2 ? 3 : 1;
      else if (octet !== LF) match = 0;
      else if (match === 1 || match === 3) match += 1;
      else throw broken('a line ends in LF alone');
    }
    this.match = match;
    if (this.heldBytes + at - begin > this.limits.headBytes)
      throw broken(`the head has more than ${this.limits.headBytes} bytes`);
    if (match < 4 || this.held !== null) this.hold(bytes, begin, at);
    if (match < 4) return at;
    const text =
      this.held === null
        ? bytes.toString('latin1', begin, at)
        : this.held.toString('latin1', 0, this.heldBytes);
    if (this.state === 'head') this.head(text);
    else {
      this.trailers = readFields(text, 0, this.limits.fields);
      for (let i = 0; i < this.trailers.length; i += 2)
        if (/^(?:content-length|transfer-encoding)$/i.test(this.trailers[i]!))
          throw broken('a trailer says how long the body is');
      this.state = 'done';
    }
    return at;
  }

  private hold(bytes: Buffer, begin: number, end: number): void {
    const size = this.heldBytes + end - begin;
    if (this.held === null || this.held.length < size) {
      const held = Buffer.allocUnsafe(Math.max(512, 2 * size));
      this.held?.copy(held, 0, 0, this.heldBytes);
      this.held = held;
    }
    bytes.copy(this.held, this.heldBytes, begin, end);
    this.heldBytes = size;
    // Who speaks something else may never end a line.
    const known = Math.min(size, PREFIX.length);
    if (this.state === 'head' && this.held.compare(PREFIX, 0, known, 0, known) !== 0)
      throw broken('the answer is not one of HTTP/1');
  }

  private head(text: string): void {
    const minor = text.charCodeAt(7) - 48;
    if (!text.startsWith('HTTP/1.') || (minor !== 0 && minor !== 1) || text.charCodeAt(8) !== SPACE)
      throw broken('the answer is not one of HTTP/1');
    let status = 0;
    for (let at = 9; at < 12; at += 1) {
      const digit = text.charCodeAt(at) - 48;
      if (!(digit >= 0 && digit <= 9)) throw broken('the status is no number');
      status = status * 10 + digit;
    }
    if (status < 100) throw broken('the status is none');
    const line = text.indexOf('\r\n');
    // The space before an empty reason is left out by some.
    if (line > 12 && text.charCodeAt(12) !== SPACE) throw broken('the status is no number of three digits');
    const reason = text.slice(13, Math.max(13, line));
    if (!isAll(reason, TEXT)) throw broken('the reason has an octet that it may not have');
    const fields = readFields(text, line + 2, this.limits.fields);
    this.framing.read(minor, status, fields, this.isHead);
    if (status < 200) return this.passOver(status);
    const { end } = this.framing;
    this.held = null;
    this.left = this.framing.length;
    this.state = end === 'none' ? 'done' : end === 'chunked' ? 'size' : end;
    this.digits = 0;
    this.sink.onHead(status, reason, fields);
  }

  private passOver(status: number): void {
    if (status === 101) throw broken('the answer changes to a protocol that was not asked for');
    this.interim += 1;
    if (this.interim > MAX_INTERIM) throw broken('there is no end of interim answers');
    this.look('head', 0);
    this.sink.onInterim(status);
  }

  /** What is between chunks (RFC 9112 section 7.1). */
  private between(octet: number): void {
    switch (this.state) {
      case 'size': {
        const digit = HEX[octet]!;
        if (digit < 16) {
          this.left = this.digits === 0 ? digit : this.left * 16 + digit;
          this.digits += 1;
          // 2⁵² is more than anybody sends and less than what a number counts exactly.
          if (this.digits > 13) throw broken('a chunk is too large');
        } else if (this.digits === 0) throw broken('the size of a chunk is no number');
        else if (octet === CR) this.state = 'size-lf';
        else if (octet === SEMICOLON) {
          this.extension = ';';
          this.state = 'extension';
        } else throw broken('the size of a chunk is no number');
        return;
      }
      case 'extension':
        if (octet !== CR) {
          this.extensionBytes += 1;
          if (this.extensionBytes > this.limits.extensionBytes)
            throw broken('the extensions of chunks are too large');
          this.extension += String.fromCharCode(octet);
          return;
        }
        if (!EXTENSIONS.test(this.extension)) throw broken('the extension of a chunk is malformed');
        this.state = 'size-lf';
        return;
      case 'size-lf':
        if (octet !== LF) throw broken('the size of a chunk does not end in CRLF');
        this.digits = 0;
        if (this.left === 0) this.look('trailers', 2);
        else this.state = 'chunk';
        return;
      case 'chunk-cr':
        if (octet !== CR) throw broken('a chunk is longer than its size');
        this.state = 'chunk-lf';
        return;
      default:
        if (octet !== LF) throw broken('a chunk does not end in CRLF');
        this.state = 'size';
    }
  }
}
