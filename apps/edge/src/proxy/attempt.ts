import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Dispatcher } from 'undici';
import { hasField, responseHeaders, responseTrailers } from '../http/headers.js';
import { type Body } from './body.js';

/** Up to this size head and body go out as one string: one copy and one system call. */
const SMALL_BYTES = 8 * 1024;

export interface AttemptParts {
  req: IncomingMessage;
  res: ServerResponse;
  requestId: string;
  body: Body | null;
  /** The replica has begun to answer. */
  onAnswer: () => void;
  /** Called once: null when the exchange ended or the client left, otherwise the error; and whether it came to its end. */
  onEnd: (error: unknown, isWhole: boolean) => void;
}

/**
 * One request at one replica: passes the answer on as it comes, with back-pressure. The head waits for the first bytes of the
 * body until the end of the tick in which it came, so that a short answer is one packet; a stream's head goes out alone.
 */
export class Attempt implements Dispatcher.DispatchHandler {
  private controller: Dispatcher.DispatchController | null = null;
  private isLeft = false;
  private isOver = false;
  /** The first bytes of the body, while the head has not gone out. */
  private held: Buffer | null = null;
  private isHeadOut = false;
  private waitsForDrain = false;

  constructor(private readonly parts: AttemptParts) {
    parts.res.on('close', this.onClose);
  }

  /** Gives the request to a connection. */
  start(dispatcher: Dispatcher, request: Dispatcher.DispatchOptions): void {
    if (this.parts.res.destroyed) return this.onClose();
    try {
      dispatcher.dispatch(request, this);
    } catch (error) {
      this.end(error);
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.controller = controller;
    if (this.isLeft) controller.abort(new Error('the client left'));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    _parsed: unknown,
    statusText?: string,
  ): void {
    // Interim answers (100, 103) concern this hop only.
    if (status < 200) return;
    const { res, requestId, onAnswer } = this.parts;
    onAnswer();
    const out = responseHeaders(flatHeaders(controller.rawHeaders));
    if (!hasField(out, 'x-request-id')) out.push('X-Request-Id', requestId);
    try {
      res.writeHead(status, statusText, out as unknown as Record<string, string>);
    } catch (error) {
      controller.abort(error as Error);
      return;
    }
    process.nextTick(flush, this);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.isHeadOut && this.held === null) {
      this.held = chunk;
      return;
    }
    this.sendHeld();
    this.write(controller, chunk);
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    const { req, res } = this.parts;
    this.addTrailers(controller);
    const { held } = this;
    this.isHeadOut = true;
    this.held = null;
    if (held === null) res.end();
    else if (held.length <= SMALL_BYTES && req.httpVersionMajor < 2)
      res.end(held.toString('latin1'), 'latin1');
    else res.end(held);
    // Over for the client only when the last byte is out; until then a leaving client still counts as one.
    this.end(null, true);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.end(this.isLeft ? null : error);
  }

  /** What has come so far goes out. */
  flush(): void {
    if (this.isHeadOut || this.isOver) return;
    if (this.held !== null && this.controller) this.sendHeld();
    else if (this.parts.req.method !== 'HEAD') this.parts.res.flushHeaders();
    this.isHeadOut = true;
  }

  private sendHeld(): void {
    const { held } = this;
    this.isHeadOut = true;
    this.held = null;
    if (held !== null && this.controller) this.write(this.controller, held);
  }

  private write(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.parts.res.write(chunk)) return;
    controller.pause();
    if (this.waitsForDrain) return;
    this.waitsForDrain = true;
    this.parts.res.once('drain', this.onDrain);
  }

  private addTrailers(controller: Dispatcher.DispatchController): void {
    const raw = controller.rawTrailers;
    if (!Array.isArray(raw) || raw.length === 0) return;
    const { req, res } = this.parts;
    // HTTP/1.1 has trailers only for those who ask, and then only in a body that has no length (RFC 9110 section 6.5.1).
    const wanted = req.httpVersionMajor > 1 || /\btrailers\b/i.test(String(req.headers.te ?? ''));
    const trailers = wanted ? responseTrailers(flatHeaders(raw)) : null;
    if (trailers) res.addTrailers(req.httpVersionMajor > 1 ? Object.fromEntries(trailers) : trailers);
  }

  private readonly onDrain = (): void => {
    this.waitsForDrain = false;
    this.controller?.resume();
  };

  private readonly onClose = (): void => {
    if (this.parts.res.writableFinished) return;
    this.isLeft = true;
    this.controller?.abort(new Error('the client left'));
    this.parts.body?.destroy();
    // Not yet on a connection: the handler aborts as soon as it is.
    if (!this.controller) this.end(null);
  };

  private end(error: unknown, isWhole = false): void {
    if (this.isOver) return;
    this.isOver = true;
    const { res } = this.parts;
    res.off('close', this.onClose);
    if (this.waitsForDrain) res.off('drain', this.onDrain);
    this.parts.onEnd(error, isWhole);
  }
}

const flush = (attempt: Attempt): void => attempt.flush();

/** undici's raw fields (name, value, …) as text; header bytes are Latin-1. */
function flatHeaders(raw: Dispatcher.DispatchController['rawHeaders']): string[] {
  if (Array.isArray(raw)) {
    const flat = new Array<string>(raw.length);
    for (let i = 0; i < raw.length; i += 1) {
      const one = raw[i]!;
      flat[i] = typeof one === 'string' ? one : one.toString('latin1');
    }
    return flat;
  }
  const flat: string[] = [];
  for (const [name, value] of Object.entries(raw ?? {})) {
    for (const one of Array.isArray(value) ? value : [value ?? '']) flat.push(name, one);
  }
  return flat;
}
