import { type OnReadOpts, type Socket } from 'node:net';
import { type Readable } from 'node:stream';
import { type AnswerLimits, AnswerParser, type AnswerSink } from './answer-parser.js';
import { broken, Http1Error } from './errors.js';
import { type Http1Reactor } from './reactor.js';
import { type Http1Request, type WrittenRequest } from './request.js';
import { Upload } from './upload.js';

/** Who gets an answer. `onEnd` or `onError` is called once, and nothing after it. */
export interface AnswerHandler {
  /** @param fields name, value, name, …: Latin-1, order and doubles as sent */
  onHead(status: number, reason: string, fields: string[]): void;
  /** @param bytes octets `start` to `end` are the next of the body; they are overwritten after the call */
  onData(bytes: Buffer, start: number, end: number): void;
  /** All that has come so far was handed over, and the answer goes on. */
  onQuiet(): void;
  /** @param trailers name, value, name, … */
  onEnd(trailers: readonly string[]): void;
  onError(error: Error): void;
}

/** Makes a socket; it has to be given `onread`, since it is read without the stream of Node around it. */
export type Connect = (onread: OnReadOpts) => Socket;

/** Milliseconds. */
export interface Http1Times {
  connectMs: number;
  /** For the head of an answer; as long as the body of the request is read from its source, nothing is counted. */
  answerMs: number;
}

/** Up to this size a body goes out in one string with the head. */
const SMALL_BYTES = 16 * 1024;
/** How long a body waits for `100 Continue` before it is sent all the same (RFC 9110 section 10.1.1). */
const CONTINUE_MS = 1_000;

const never = Infinity;

/** A connection of HTTP/1.1 that asks: one request at a time. */
export class Http1Connection implements AnswerSink {
  /** For its owner: when it began to be idle, and until when it may be used again. */
  idleSince = 0;
  usableUntil = 0;
  private readonly socket: Socket;
  private readonly parser: AnswerParser;
  private handler: AnswerHandler | null = null;
  private isConnected = false;
  private isDestroyed = false;
  private isPaused = false;
  private hasHead = false;
  private due = never;
  /** What is sent as soon as there is a connection. */
  private waiting: { request: Http1Request; written: WrittenRequest } | null = null;
  private upload: Upload | null = null;
  private isExpecting = false;

  /**
   * @param onIdle it is free for the next request
   * @param onGone it is of no use any more; called once
   */
  constructor(
    connect: Connect,
    private readonly reactor: Http1Reactor,
    private readonly times: Http1Times,
    limits: AnswerLimits,
    private readonly owner: {
      onIdle(connection: Http1Connection, keepSeconds: number | null): void;
      onGone(connection: Http1Connection): void;
    },
  ) {
    this.parser = new AnswerParser(this, limits);
    this.socket = connect({
      buffer: reactor.buffer,
      callback: (size) => (this.onRead(size), true),
    });
    this.due = reactor.in(times.connectMs);
    const isTls = 'encrypted' in this.socket;
    this.socket
      .once(isTls ? 'secureConnect' : 'connect', () => this.onConnect())
      .on('drain', () => this.upload?.drained())
      .on('end', () => this.onEndOfInput())
      .on('error', (error) => this.onSocketError(error))
      .on('close', () => this.fail(hungUp()));
    reactor.add(this);
  }

  /** Sends a request. The connection has to be new or idle. */
  send(request: Http1Request, written: WrittenRequest, handler: AnswerHandler): void {
    this.handler = handler;
    this.hasHead = false;
    this.parser.begin(request.method === 'HEAD');
    if (this.isConnected) this.write(request, written);
    else this.waiting = { request, written };
  }

  /** Ends the exchange; its handler hears nothing more of it. */
  abort(): void {
    this.handler = null;
    this.destroy();
  }

  /** Closes the connection; an exchange under way fails. */
  close(): void {
    this.fail(hungUp());
  }

  /** Reads no more of the answer; what was read already is handed over. */
  pause(): void {
    if (this.handler === null) return;
    this.isPaused = true;
    this.socket.pause();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    this.socket.resume();
  }

  onTick(now: number): void {
    if (now < this.due) return;
    if (!this.isConnected)
      this.fail(new Http1Error('HTTP1_CONNECT_TIMEOUT', 'the connection was not made in time'));
    else if (this.isExpecting) this.goOn();
    // The source of the body is slow, not the other side.
    else if (this.upload && !this.upload.isDone && !this.upload.isBlocked) this.restart();
    else this.fail(new Http1Error('HTTP1_ANSWER_TIMEOUT', 'the head of the answer did not come in time'));
  }

  onInterim(status: number): void {
    if (status === 100) this.goOn();
  }

  onHead(status: number, reason: string, fields: string[]): void {
    this.hasHead = true;
    this.due = never;
    this.handler?.onHead(status, reason, fields);
  }

  onData(bytes: Buffer, start: number, end: number): void {
    this.handler?.onData(bytes, start, end);
  }

  private write(request: Http1Request, { head, length, isExpecting }: WrittenRequest): void {
    const { socket } = this;
    const { body } = request;
    if (body === null) socket.write(head, 'latin1');
    else if (typeof body === 'string') {
      // As many bytes as characters: it is ASCII, and goes out with the head as it is.
      if (length === body.length && length <= SMALL_BYTES) socket.write(head + body, 'latin1');
      else this.writeBoth(head, Buffer.from(body));
    } else if (Buffer.isBuffer(body)) this.writeBoth(head, body);
    else this.writeStream(body, head, length, isExpecting);
    if (!this.isExpecting) this.restart();
  }

  private writeBoth(head: string, body: Buffer): void {
    const { socket } = this;
    if (body.length <= SMALL_BYTES) return void socket.write(head + body.toString('latin1'), 'latin1');
    socket.cork();
    socket.write(head, 'latin1');
    socket.write(body);
    socket.uncork();
  }

  private writeStream(body: Readable, head: string, length: number | null, isExpecting: boolean): void {
    const { socket } = this;
    this.upload = new Upload(
      body,
      socket,
      length,
      () => this.restart(),
      (error) => this.fail(error),
    );
    if (isExpecting) {
      socket.write(head, 'latin1');
      this.isExpecting = true;
      this.due = this.reactor.in(CONTINUE_MS);
      return;
    }
    // What is there of the body comes in the next turn, and goes out in one packet with the head.
    socket.cork();
    socket.write(head, 'latin1');
    this.upload.begin();
    setImmediate(uncork, socket);
  }

  /** The body need not wait any more. */
  private goOn(): void {
    if (!this.isExpecting) return;
    this.isExpecting = false;
    this.restart();
    this.upload?.begin();
  }

  private restart(): void {
    if (!this.hasHead && !this.isExpecting && this.handler) this.due = this.reactor.in(this.times.answerMs);
  }

  private onConnect(): void {
    this.isConnected = true;
    this.due = never;
    const { waiting } = this;
    this.waiting = null;
    if (waiting && this.handler) this.write(waiting.request, waiting.written);
  }

  private onRead(size: number): void {
    const { handler, parser } = this;
    // Nobody has asked: what these octets would answer cannot be known.
    if (handler === null) return this.destroy();
    try {
      const at = parser.read(this.reactor.buffer, 0, size);
      if (this.handler !== handler) return;
      if (parser.isDone) this.finish(at === size);
      else if (this.hasHead) handler.onQuiet();
    } catch (error) {
      this.fail(error instanceof Error ? error : broken(String(error)));
    }
  }

  private onEndOfInput(): void {
    if (this.handler === null) return this.destroy();
    try {
      this.parser.finish();
    } catch (error) {
      return this.fail(error as Error);
    }
    this.finish(false);
  }

  private onSocketError(error: Error): void {
    this.fail(this.isConnected ? hungUp(error) : error);
  }

  /** @param isClean nothing came behind the answer */
  private finish(isClean: boolean): void {
    const handler = this.handler!;
    const { framing, trailers } = this.parser;
    this.handler = null;
    this.due = never;
    const isSent = this.upload === null || this.upload.isDone;
    if (isClean && isSent && framing.isKept) {
      this.upload = null;
      // The end of an idle connection is seen by reading only.
      this.resume();
      this.owner.onIdle(this, framing.keepSeconds);
    } else this.destroy();
    handler.onEnd(trailers);
  }

  private fail(error: Error): void {
    const { handler } = this;
    this.handler = null;
    this.destroy();
    handler?.onError(error);
  }

  private destroy(): void {
    if (this.isDestroyed) return;
    this.isDestroyed = true;
    this.due = never;
    this.waiting = null;
    this.upload?.stop();
    this.upload = null;
    this.reactor.delete(this);
    this.socket.destroy();
    this.owner.onGone(this);
  }
}

const uncork = (socket: Socket): void => socket.uncork();

const hungUp = (cause?: Error): Http1Error =>
  new Http1Error('HTTP1_CLOSED', 'the other side closed the connection', cause ? { cause } : undefined);
