import { createServer, type Server, type Socket } from 'node:net';
import type { Responder } from './responder.js';

/** Milliseconds without a whole query after which a connection is closed (RFC 7766, 6.2.3). */
const usualIdleMs = 10_000;
/** Most connections at once; more are closed at once, UDP goes on. */
const maxConnections = 512;
/** Bytes of answers that a client has not taken; it is not read from until it has. */
const maxWaiting = 262_144;

/** Queries over TCP: each behind its length, many in one connection (RFC 7766). */
export function createTcp(responder: Responder, idleMs = usualIdleMs): Server {
  const server = createServer({ noDelay: true }, (socket) => serve(socket, responder, idleMs));
  server.maxConnections = maxConnections;
  return server;
}

function serve(socket: Socket, responder: Responder, idleMs: number): void {
  let waiting = Buffer.alloc(0);
  // Not the socket's own: a byte now and then would hold a place for ever.
  const idle = setTimeout(() => socket.destroy(), idleMs);
  socket.on('close', () => clearTimeout(idle));
  socket.on('error', () => socket.destroy());
  const work = (): void => {
    const answers: Buffer[] = [];
    let at = 0;
    let bytes = 0;
    while (waiting.length >= at + 2 && bytes < maxWaiting) {
      const length = waiting.readUInt16BE(at);
      if (waiting.length < at + 2 + length) break;
      const answer = responder.answer(waiting.subarray(at + 2, at + 2 + length), true);
      at += 2 + length;
      // What is no query over a connection of its own is nobody's mistake: an end is put to it.
      if (!answer) return void socket.destroy();
      const head = Buffer.allocUnsafe(2);
      head.writeUInt16BE(answer.length);
      answers.push(head, answer);
      bytes += 2 + answer.length;
    }
    if (at > 0) waiting = Buffer.from(waiting.subarray(at));
    if (answers.length === 0) return;
    idle.refresh();
    if (!socket.write(Buffer.concat(answers))) {
      socket.pause();
      socket.once('drain', () => {
        idle.refresh();
        socket.resume();
        work();
      });
    } else if (bytes >= maxWaiting) setImmediate(work);
  };
  socket.on('data', (chunk) => {
    waiting = waiting.length === 0 ? chunk : Buffer.concat([waiting, chunk]);
    work();
  });
}
