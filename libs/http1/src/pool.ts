import { type OnReadOpts, type Socket } from 'node:net';
import { type AnswerLimits, answerLimits } from './answer-parser.js';
import { type AnswerHandler, Http1Connection, type Http1Times } from './connection.js';
import { type Http1Reactor, type Ticked } from './reactor.js';
import { type Http1Request, writeRequest } from './request.js';

/** Where requests go: connections to one are not used for another. */
export interface Http1Target {
  host: string;
  port: number;
}

export interface Http1PoolOptions<T extends Http1Target> extends Http1Times {
  reactor: Http1Reactor;
  /** Makes a socket to a target, TLS or not, that reads with `onread` (an option of `net.connect` and `tls.connect`). */
  connect: (target: T, onread: OnReadOpts) => Socket;
  /** Milliseconds that an idle connection is kept; less where the other side keeps it for less. */
  idleMs: number;
  limits?: AnswerLimits;
}

/** The other side closes an idle connection when it has said; before that it must not be used for so long, in ms. */
const MARGIN_MS = 2_000;

/**
 * Connections, one request at a time each, as many as there are requests: an open stream must never make another one wait. The
 * one that was used last is taken first, so that those beyond need grow old and go.
 */
export class Http1Pool<T extends Http1Target = Http1Target> implements Ticked {
  private readonly idle = new Map<string, Http1Connection[]>();
  private readonly all = new Map<Http1Connection, string>();
  private readonly limits: AnswerLimits;
  private isDestroyed = false;

  constructor(private readonly options: Http1PoolOptions<T>) {
    this.limits = options.limits ?? answerLimits;
    options.reactor.add(this);
  }

  /** Connections that there are now, used or idle. */
  get size(): number {
    return this.all.size;
  }

  /**
   * Sends a request.
   * @param maxIdleMs a connection that was idle for longer is not taken; 0: a new one
   * @returns the connection, for `pause`, `resume` and `abort` of this exchange, and until its end only
   * @throws TypeError for a request that would not be one; the handler hears nothing then
   */
  send(target: T, request: Http1Request, handler: AnswerHandler, maxIdleMs = Infinity): Http1Connection {
    const written = writeRequest(request);
    const key = `${target.host} ${target.port}`;
    const connection = this.take(key, maxIdleMs) ?? this.open(target, key);
    connection.send(request, written, handler);
    return connection;
  }

  /** Closes all connections; exchanges under way fail. */
  destroy(): void {
    this.isDestroyed = true;
    this.options.reactor.delete(this);
    for (const connection of [...this.all.keys()]) connection.close();
  }

  /** Idle ones that are old go. */
  onTick(now: number): void {
    for (const idle of this.idle.values())
      for (const connection of [...idle]) if (connection.usableUntil < now) connection.close();
  }

  onIdle(connection: Http1Connection, keepSeconds: number | null): void {
    const key = this.all.get(connection);
    const { idleMs } = this.options;
    const keptMs = keepSeconds === null ? idleMs : Math.min(idleMs, keepSeconds * 1_000 - MARGIN_MS);
    if (key === undefined || keptMs <= 0 || this.isDestroyed) return connection.close();
    connection.idleSince = performance.now();
    connection.usableUntil = connection.idleSince + keptMs;
    const idle = this.idle.get(key);
    if (idle) idle.push(connection);
    else this.idle.set(key, [connection]);
  }

  onGone(connection: Http1Connection): void {
    const key = this.all.get(connection);
    if (key === undefined) return;
    this.all.delete(connection);
    const idle = this.idle.get(key);
    if (!idle) return;
    const at = idle.lastIndexOf(connection);
    if (at >= 0) idle.splice(at, 1);
    if (idle.length === 0) this.idle.delete(key);
  }

  private take(key: string, maxIdleMs: number): Http1Connection | null {
    const last = this.idle.get(key)?.at(-1);
    if (!last) return null;
    const now = performance.now();
    // Those below it are older still.
    if (last.usableUntil < now || now - last.idleSince > maxIdleMs) return null;
    this.idle.get(key)!.pop();
    return last;
  }

  private open(target: T, key: string): Http1Connection {
    const { connect, reactor } = this.options;
    const connection = new Http1Connection(
      (onread) => connect(target, onread),
      reactor,
      this.options,
      this.limits,
      this,
    );
    this.all.set(connection, key);
    return connection;
  }
}
