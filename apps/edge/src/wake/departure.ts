import { type ServerResponse } from 'node:http';
import { type Duplex } from 'node:stream';

/** A signal that fires when the client of a request leaves, and what was read from it meanwhile. */
export interface Departure {
  signal: AbortSignal;
  /** Stops looking. @returns bytes that came early */
  stop(): Buffer;
}

const left = (): Error => new Error('the client left');

/** For a request: its body, if any, stays unread, and a client that has one is missed only when it is read. */
export function departureOf(res: ServerResponse): Departure {
  const gone = new AbortController();
  const onClose = (): void => gone.abort(left());
  if (res.destroyed) onClose();
  else res.once('close', onClose);
  return { signal: gone.signal, stop: () => (res.off('close', onClose), Buffer.alloc(0)) };
}

/** At most so much is read from a client that speaks before its upgrade is answered. */
const EARLY_BYTES = 64 * 1024;

/** For a socket that its server has given away: somebody has to read it to learn that the other side has gone. */
export function departureOfSocket(socket: Duplex): Departure {
  const gone = new AbortController();
  const early: Buffer[] = [];
  let bytes = 0;
  const onGone = (): void => gone.abort(left());
  const onReadable = (): void => {
    while (bytes < EARLY_BYTES) {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      bytes += chunk.length;
      early.push(chunk);
    }
  };
  if (socket.destroyed || socket.readableEnded) onGone();
  socket.on('readable', onReadable).once('end', onGone).once('close', onGone);
  return {
    signal: gone.signal,
    stop: () => {
      socket.off('readable', onReadable).off('end', onGone).off('close', onGone);
      return Buffer.concat(early);
    },
  };
}
