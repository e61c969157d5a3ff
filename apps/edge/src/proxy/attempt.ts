import { type IncomingMessage, type ServerResponse } from 'node:http';
import {
  type AnswerHandler,
  type Http1Connection,
  Http1Error,
  type Http1Pool,
  type Http1Request,
} from '@nebo/http1';
import { cut } from '../http/cut.js';
import { hasField, responseHeaders, responseTrailers } from '../http/headers.js';
import { type Replica } from '../routes/snapshot.js';
import { type Coding, codeAnswer } from './coding.js';
import { Encoder, encodeShort } from './encoder.js';

/** Up to this size head and body go out as one string: one copy and one system call. */
const SMALL_BYTES = 8 * 1024;

/** What an attempt is for. */
export interface Attempted {
  req: IncomingMessage;
  res: ServerResponse;
  request: { requestId: string };
}

/** Who is told of an attempt. */
export interface AttemptOwner<T extends Attempted> {
  /** The replica has begun to answer. */
  answered(replica: Replica): void;
  /** Whether one more answer may be coded now; what is given has to come back. */
  takeCoder(): boolean;
  giveCoderBack(): void;
  /** Called once: null when the exchange ended or the client left, otherwise the error. */
  ended(one: T, replica: Replica, error: unknown): void;
}

/**
 * One request at one replica: passes the answer on as it comes, with back-pressure. The head waits for the first bytes of the
 * body as long as there is something to read, so that a short answer is one packet; a stream's head goes out alone. Text that the
 * app left plain is coded on its way, if the client takes that.
 */
export class Attempt<T extends Attempted> implements AnswerHandler {
  private connection: Http1Connection | null = null;
  private isLeft = false;
  private isOver = false;
  /** The first bytes of the body, Latin-1, while the head has not gone out. */
  private held: string | null = null;
  private isHeadOut = false;
  private waitsForDrain = false;
  private coding: Coding | null = null;
  /** Made with the first bytes that go out before the last ones have come. */
  private encoder: Encoder | null = null;

  constructor(
    private readonly one: T,
    private readonly replica: Replica,
    private readonly owner: AttemptOwner<T>,
  ) {
    one.res.on('close', this.onClose);
  }

  /** Gives the request to a connection. @param maxIdleMs how long that may have been idle */
  start(pool: Http1Pool<Replica>, request: Http1Request, maxIdleMs: number): void {
    if (this.one.res.destroyed) return this.onClose();
    try {
      this.connection = pool.send(this.replica, request, this, maxIdleMs);
    } catch (error) {
      this.end(error);
    }
  }

  onHead(status: number, reason: string, fields: string[]): void {
    const { res, request } = this.one;
    this.owner.answered(this.replica);
    const out = responseHeaders(fields);
    if (!hasField(out, 'x-request-id')) out.push('X-Request-Id', request.requestId);
    this.coding = codeAnswer(this.one.req, status, out, () => this.owner.takeCoder());
    // What it throws ends the exchange as an error of the app.
    res.writeHead(status, reason, out as unknown as Record<string, string>);
  }

  onData(bytes: Buffer, start: number, end: number): void {
    if (!this.isHeadOut) {
      if (this.held === null && end - start <= SMALL_BYTES) {
        this.held = bytes.toString('latin1', start, end);
        return;
      }
      this.sendHeld();
    }
    this.write(Buffer.from(bytes.subarray(start, end)));
  }

  onEnd(trailers: readonly string[]): void {
    const { req, res } = this.one;
    this.connection = null;
    if (trailers.length > 0) this.addTrailers(trailers);
    const { held } = this;
    this.isHeadOut = true;
    this.held = null;
    if (this.encoder !== null) {
      this.encoder.end();
      // Answered early: see below.
      if (!req.complete) req.resume();
      return;
    }
    if (this.coding !== null) res.end(encodeShort(this.coding, Buffer.from(held ?? '', 'latin1')));
    else if (held === null) res.end();
    else if (req.httpVersionMajor < 2) res.end(held, 'latin1');
    else res.end(Buffer.from(held, 'latin1'));
    // Answered early: the rest of the body is dropped, so that the client's connection goes on.
    if (!req.complete) req.resume();
    // Over for the client only when the last byte is out; until then a leaving client still counts as one.
    this.end(null);
  }

  onError(error: Error): void {
    this.connection = null;
    // A body that was cut off: its client is leaving, or has broken its word about the length.
    if (error instanceof Http1Error && error.code === 'HTTP1_BODY') {
      this.isLeft = true;
      cut(this.one.res);
    }
    this.end(this.isLeft ? null : error);
  }

  /** What has come so far goes out. */
  onQuiet(): void {
    if (this.isHeadOut) return this.encoder?.flush();
    if (this.held !== null) this.sendHeld();
    else if (this.one.req.method !== 'HEAD') this.one.res.flushHeaders();
    this.isHeadOut = true;
    this.encoder?.flush();
  }

  private sendHeld(): void {
    const { held } = this;
    this.isHeadOut = true;
    this.held = null;
    if (held !== null) this.write(Buffer.from(held, 'latin1'));
  }

  private write(chunk: Buffer): void {
    if (this.coding !== null) {
      this.encoder ??= this.makeEncoder(this.coding);
      if (!this.encoder.write(chunk)) this.connection?.pause();
      return;
    }
    if (this.one.res.write(chunk)) return;
    this.connection?.pause();
    if (this.waitsForDrain) return;
    this.waitsForDrain = true;
    this.one.res.once('drain', () => this.drained());
  }

  private makeEncoder(coding: Coding): Encoder {
    const { res } = this.one;
    return new Encoder(coding, res, {
      drain: () => this.connection?.resume(),
      end: () => {
        res.end();
        this.end(null);
      },
      error: (error) => {
        this.connection?.abort();
        this.connection = null;
        this.end(error);
      },
    });
  }

  private addTrailers(raw: readonly string[]): void {
    const { req, res } = this.one;
    // HTTP/1.1 has trailers only for those who ask, and then only in a body that has no length (RFC 9110 section 6.5.1).
    const wanted = req.httpVersionMajor > 1 || /\btrailers\b/i.test(String(req.headers.te ?? ''));
    const trailers = wanted ? responseTrailers(raw) : null;
    if (trailers) res.addTrailers(req.httpVersionMajor > 1 ? Object.fromEntries(trailers) : trailers);
  }

  private drained(): void {
    this.waitsForDrain = false;
    this.connection?.resume();
  }

  private readonly onClose = (): void => {
    if (this.one.res.writableFinished) return;
    this.isLeft = true;
    this.connection?.abort();
    this.connection = null;
    this.end(null);
  };

  private end(error: unknown): void {
    if (this.isOver) return;
    this.isOver = true;
    if (this.coding !== null) {
      this.owner.giveCoderBack();
      this.encoder?.destroy();
    }
    this.one.res.off('close', this.onClose);
    this.owner.ended(this.one, this.replica, error);
  }
}
