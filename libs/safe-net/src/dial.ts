import { lookup as systemLookup } from 'node:dns/promises';
import { connect as tcpConnect, isIP, type Socket } from 'node:net';
import { connect as tlsConnect, type ConnectionOptions } from 'node:tls';
import { checkAddress, sameAddress } from './addresses.js';
import { SafeNetFailed, SafeNetRefused } from './errors.js';
import { bareName, type AllowList } from './policy.js';

/** All addresses of a name, A and AAAA. Injected by tests. @throws when the name does not resolve */
export type Lookup = (name: string, signal: AbortSignal) => Promise<readonly string[]>;

/** Opens a TCP connection to an address. Injected by tests only. */
export type TcpDial = (address: string, port: number) => Socket;

/** What dialling needs beside the target. */
export interface DialOptions {
  allow?: AllowList;
  lookup?: Lookup;
  dial?: TcpDial;
  /** Milliseconds for one address. */
  connectTimeoutMs?: number;
}

/** The system's resolver: what the machine itself would use, /etc/hosts included. */
export const defaultLookup: Lookup = async (name) =>
  (await systemLookup(name, { all: true, verbatim: true })).map((answer) => answer.address);

/** Rejects as soon as the signal aborts: getaddrinfo itself cannot be stopped. */
function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason as Error);
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/**
 * Resolves a host once and checks every answer: one private address among public ones refuses the name, since the next
 * connection might get it.
 * @param allowed the operator named host:port, so its addresses are not checked
 * @returns the addresses that may be dialled
 * @throws SafeNetRefused, SafeNetFailed('dns')
 */
export async function resolveChecked(
  host: string,
  port: number,
  allowed: boolean,
  options: DialOptions,
  signal: AbortSignal,
): Promise<readonly string[]> {
  let addresses: readonly string[] = [host];
  if (isIP(host) === 0) {
    try {
      addresses = await orAbort((options.lookup ?? defaultLookup)(bareName(host), signal), signal);
    } catch (error) {
      if (signal.aborted) throw error;
      throw new SafeNetFailed('dns', `the name ${bareName(host)} does not resolve`, error);
    }
  }
  if (addresses.length === 0) throw new SafeNetFailed('dns', `the name ${bareName(host)} has no address`);
  if (!allowed) {
    for (const address of addresses) {
      const rule = checkAddress(address);
      if (rule !== null && !options.allow?.has(address, port)) {
        throw new SafeNetRefused(rule, `${bareName(host)} is not at a public address`);
      }
    }
  }
  return addresses;
}

/**
 * Connects to host:port by an address that was checked, and only that one: there is no second resolution between check
 * and use. The peer's address is compared once more before a byte is written.
 * @throws SafeNetRefused, SafeNetFailed('dns' | 'connect'), the signal's reason
 */
export async function dialChecked(
  host: string,
  port: number,
  allowed: boolean,
  options: DialOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const addresses = await resolveChecked(host, port, allowed, options, signal);
  let last: unknown;
  for (const address of addresses.slice(0, 4)) {
    try {
      return await connectTo(address, port, options, signal);
    } catch (error) {
      if (signal.aborted || error instanceof SafeNetRefused) throw error;
      last = error;
    }
  }
  throw new SafeNetFailed('connect', `no connection to ${bareName(host)}:${port}`, last);
}

function connectTo(
  address: string,
  port: number,
  options: DialOptions,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason as Error);
    const socket = (options.dial ?? ((host, to) => tcpConnect({ host, port: to })))(address, port);
    const fail = (error: Error) => {
      settle();
      socket.destroy();
      reject(error);
    };
    const abort = () => fail(signal.reason as Error);
    const timer = setTimeout(() => fail(new Error('connect timeout')), options.connectTimeoutMs ?? 5_000);
    const settle = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      socket.removeListener('error', fail);
      socket.on('error', () => undefined);
    };
    signal.addEventListener('abort', abort, { once: true });
    socket.once('error', fail);
    socket.once('connect', () => {
      if (!sameAddress(socket.remoteAddress ?? '', address)) {
        return fail(new SafeNetRefused('peer', 'the connection did not reach the address that was checked'));
      }
      settle();
      resolve(socket);
    });
  });
}

/** TLS over a dialled socket, for the original name (SNI and certificate), HTTP/1.1 only. */
export function startTls(
  socket: Socket,
  host: string,
  tls: ConnectionOptions,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const name = bareName(host);
    const secure = tlsConnect({
      ...tls,
      socket,
      // Addresses have no SNI; their certificate is checked against the address.
      ...(isIP(name) === 0 ? { servername: name } : { host: name }),
      ALPNProtocols: ['http/1.1'],
    });
    const fail = (error: Error) => {
      signal.removeEventListener('abort', abort);
      secure.destroy();
      socket.destroy();
      reject(
        signal.aborted
          ? error
          : new SafeNetFailed('connect', `TLS with ${name} failed: ${tlsWords(error)}`, error),
      );
    };
    const abort = () => fail(signal.reason as Error);
    signal.addEventListener('abort', abort, { once: true });
    secure.once('error', fail);
    secure.once('secureConnect', () => {
      signal.removeEventListener('abort', abort);
      secure.removeListener('error', fail);
      secure.on('error', () => undefined);
      resolve(secure);
    });
  });
}

/** OpenSSL's code words are safe to show and help the user; its messages may hold more. */
const tlsWords = (error: Error) => (error as NodeJS.ErrnoException).code ?? 'handshake';
