import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  type AnswerHandler,
  type Http1Connection,
  Http1Error,
  type Http1Pool,
  type Http1Request,
  type Http1Target,
} from '@nebo/http1';
import { mayDrain } from './errors.js';

/** Up to this size pieces go on as text: what one read brings is one write, its head included. Bytes. */
const smallBytes = 8 * 1024;

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** A client's request as the service behind is to see it. @param host of the service, for a request that names none */
export function passedRequest(request: IncomingMessage, host: string): Http1Request {
  const headers: string[] = [];
  for (const name in request.headers) {
    const value = request.headers[name];
    if (value === undefined || hopByHop.has(name) || name === 'expect') continue;
    if (typeof value === 'string') headers.push(name, value);
    else for (const one of value) headers.push(name, one);
  }
  if (request.headers.host === undefined) headers.push('host', host);
  const hasBody =
    request.headers['content-length'] !== undefined || request.headers['transfer-encoding'] !== undefined;
  return { method: request.method!, path: request.url!, headers, body: hasBody ? request : null };
}

/** One answer on its way through the gateway: its pieces are written as they come, with the client's own pace. */
export class Passage implements AnswerHandler {
  /** Null before the request and after the end of its answer. */
  private connection: Http1Connection | null = null;
  private isOver = false;
  /** What this read brought and was not written yet, Latin-1, which leaves bytes as they are. */
  private held = '';
  private isHeadOut = false;
  private waitsForDrain = false;

  /**
   * @param onFailed told once, when there is no answer or only a part of it; not when the client left
   * @param onOver told once, however it ended
   */
  constructor(
    private readonly request: IncomingMessage,
    private readonly response: ServerResponse,
    private readonly onFailed: (error: unknown) => void,
    private readonly onOver: () => void,
  ) {}

  begin(pool: Http1Pool, target: Http1Target, host: string): void {
    const { request, response } = this;
    if (response.destroyed) return this.over();
    response.once('close', () => {
      if (!response.writableFinished) this.leave();
    });
    try {
      this.connection = pool.send(target, passedRequest(request, host), this);
    } catch (error) {
      this.onError(error as Error);
    }
  }

  onHead(status: number, _reason: string, fields: string[]): void {
    const out: string[] = [];
    for (let at = 0; at < fields.length; at += 2)
      if (!hopByHop.has(fields[at]!.toLowerCase())) out.push(fields[at]!, fields[at + 1]!);
    this.response.writeHead(status, out);
  }

  onData(bytes: Buffer, start: number, end: number): void {
    if (end - start <= smallBytes) this.held += bytes.toString('latin1', start, end);
    else {
      this.writeHeld();
      this.isHeadOut = true;
      this.written(this.response.write(Buffer.from(bytes.subarray(start, end))));
    }
  }

  onQuiet(): void {
    if (this.held !== '') this.writeHeld();
    // The head of an event stream must reach the client before its first event.
    else if (!this.isHeadOut) this.response.flushHeaders();
    this.isHeadOut = true;
  }

  onEnd(): void {
    const { request, response } = this;
    this.connection = null;
    this.over();
    if (this.held === '') response.end();
    else response.end(this.held, 'latin1');
    // Answered before all of the body was read.
    if (request.complete) return;
    if (mayDrain(request.headers)) request.resume();
    else response.once('finish', () => request.socket.destroySoon());
  }

  onError(error: Error): void {
    this.connection = null;
    if (this.isOver) return;
    this.over();
    // The body was cut off: the client is leaving.
    if (error instanceof Http1Error && error.code === 'HTTP1_BODY') this.response.destroy();
    else this.onFailed(error);
  }

  private leave(): void {
    const { connection } = this;
    this.connection = null;
    connection?.abort();
    this.over();
  }

  private over(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.onOver();
  }

  private writeHeld(): void {
    const { held } = this;
    if (held === '') return;
    this.held = '';
    this.written(this.response.write(held, 'latin1'));
  }

  private written(hasRoom: boolean): void {
    if (hasRoom || this.waitsForDrain) return;
    this.waitsForDrain = true;
    this.connection?.pause();
    this.response.once('drain', () => {
      this.waitsForDrain = false;
      this.connection?.resume();
    });
  }
}
