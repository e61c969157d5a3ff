import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Http2ServerRequest } from 'node:http2';
import { cut } from './cut.js';

interface Watched {
  req: IncomingMessage;
  res: ServerResponse;
  /** Of the connection. */
  bytes: number;
  /** Since when nothing came. */
  since: number;
}

/** Whether it is the client that a body waits for, and nobody gets an answer meanwhile. */
const isAwaited = (req: IncomingMessage, res: ServerResponse): boolean =>
  !req.complete && req.readableFlowing === true && (!res.headersSent || res.writableEnded);

/**
 * Ends requests of whose body nothing comes: each holds a connection here and one to an app. A body may last as long as it moves,
 * and as long as it is the app that does not take it.
 */
export class StalledBodies {
  private readonly watched = new Set<Watched>();
  private readonly timer: NodeJS.Timeout;

  /** @param stallMs how long nothing may come */
  constructor(private readonly stallMs: number) {
    this.timer = setInterval(() => this.look(), Math.min(1_000, stallMs / 4)).unref();
  }

  /** For a request with a body. */
  watch(req: IncomingMessage, res: ServerResponse): void {
    if (req.httpVersionMajor > 1) return this.watchStream(req, res);
    const one = { req, res, bytes: req.socket.bytesRead, since: performance.now() };
    this.watched.add(one);
    req.once('close', () => this.watched.delete(one));
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** A stream of HTTP/2 knows itself when nothing has moved on it. */
  private watchStream(req: IncomingMessage, res: ServerResponse): void {
    const { stream } = req as unknown as Http2ServerRequest;
    stream.setTimeout(this.stallMs, () => {
      if (isAwaited(req, res)) cut(res);
      else if (!req.complete) stream.setTimeout(this.stallMs);
    });
  }

  private look(): void {
    const now = performance.now();
    for (const one of this.watched) {
      const { req, res, bytes } = one;
      const { bytesRead } = req.socket;
      if (req.complete) this.watched.delete(one);
      else if (bytes !== bytesRead || !isAwaited(req, res))
        Object.assign(one, { bytes: bytesRead, since: now });
      else if (now - one.since >= this.stallMs) req.socket.destroy();
    }
  }
}
