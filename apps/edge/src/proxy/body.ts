import { type IncomingMessage } from 'node:http';
import { PassThrough, type Readable } from 'node:stream';

/** A request's body, and whether any of it was taken from the socket's side. */
export type Body = Readable & { begun: boolean };

/**
 * The body of a request as a stream of its own. undici destroys a body when an exchange fails; destroying the request itself
 * would cut the client's connection before the error page is out. Nothing is read before somebody reads it: as long as no
 * replica has taken a connection, another one can be given the whole.
 */
export function detached(req: IncomingMessage): Body {
  const body = new LazyBody(req);
  const left = (): void => void body.destroy(new Error('the client left'));
  // A request of HTTP/2 that is cut off ends like a whole one; that it was cut is said before.
  req.once('aborted', left);
  req.once('close', () => {
    if (!req.complete) left();
  });
  // An error here is reported through undici; without a listener it would end the process.
  body.on('error', () => undefined);
  return body;
}

class LazyBody extends PassThrough {
  begun = false;

  constructor(private readonly source: IncomingMessage) {
    super();
  }

  override _read(size: number): void {
    if (!this.begun) {
      this.begun = true;
      this.source.pipe(this);
    }
    super._read(size);
  }
}
