import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { type TcpDial } from '../src/dial.js';

/** Listeners on loopback that nobody may reach; `hits` counts connections, not just requests. */
export interface Canaries {
  /** One port, open on 127.0.0.1 and (where the machine has it) on ::1. */
  port: number;
  hits(): number;
  stop(): Promise<void>;
}

export async function startCanaries(): Promise<Canaries> {
  let hits = 0;
  const make = () => {
    const server = createServer((_request, response) => response.end('secret'));
    server.on('connection', () => (hits += 1));
    return server;
  };
  const four = make();
  await new Promise<void>((resolve) => four.listen(0, '127.0.0.1', resolve));
  const { port } = four.address() as { port: number };
  const six = make();
  await new Promise<void>((resolve) => {
    six.once('error', () => resolve());
    six.listen({ port, host: '::1', ipv6Only: true }, resolve);
  });
  const close = (server: typeof four) =>
    new Promise<void>((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  return { port, hits: () => hits, stop: async () => void (await Promise.all([close(four), close(six)])) };
}

/** An http server on 127.0.0.1 as a function of the request. */
export async function startOrigin(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ port: number; stop(): Promise<void> }> {
  const server = createServer(handle);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as { port: number }).port,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

/**
 * The internet in a test: each dial ends at `port` on loopback, but the socket claims to be where it was sent, so that the
 * peer check sees what it would see outside. `dialled` records the targets.
 */
export function fakeInternet(port: () => number): { dial: TcpDial; dialled: string[] } {
  const dialled: string[] = [];
  const dial: TcpDial = (address, to) => {
    dialled.push(`${address} ${to}`);
    const socket: Socket = connect({ host: '127.0.0.1', port: port() });
    Object.defineProperty(socket, 'remoteAddress', { value: address });
    return socket;
  };
  return { dial, dialled };
}
