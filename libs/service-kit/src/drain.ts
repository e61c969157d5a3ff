import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How long requests that are under way may take to end once their server closes, milliseconds. */
const drainMs = 2_000;

/** Between two looks for connections on which nothing is under way any more, milliseconds. */
const lookMs = 25;

/**
 * Watches a server from its beginning, so that it can be closed without cutting off a client which asks one thing after the
 * other on a kept connection.
 * @returns to be called just before the server is closed: from then on each answer ends its connection, and connections on
 *   which nothing is under way are closed. Only what lasts longer than `mostMs`, such as a stream without end, is cut.
 */
export function drainOf(server: Server, mostMs = drainMs): () => void {
  let isEnding = false;
  const newest = new Map<Socket, ServerResponse>();
  server.on('connection', (socket) => socket.once('close', () => newest.delete(socket)));
  server.prependListener('request', ({ socket }, response) => {
    newest.set(socket, response);
    if (isEnding) response.shouldKeepAlive = false;
  });
  return () => {
    if (isEnding || !server.listening) return;
    isEnding = true;
    for (const response of newest.values()) response.shouldKeepAlive = false;
    const look = setInterval(() => server.closeIdleConnections(), lookMs);
    const cut = setTimeout(() => server.closeAllConnections(), mostMs);
    server.once('close', () => {
      clearInterval(look);
      clearTimeout(cut);
    });
  };
}
