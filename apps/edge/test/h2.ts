import http2, { type ClientHttp2Session, type ClientHttp2Stream, type IncomingHttpHeaders } from 'node:http2';
import { buffer } from 'node:stream/consumers';
import tls, { type TLSSocket } from 'node:tls';
import { type Cleanup } from './kit.js';

export interface H2Answer {
  status: number;
  headers: IncomingHttpHeaders;
  trailers: IncomingHttpHeaders;
  body: Buffer;
  text: string;
}

/** A connection of HTTP/2 to an edge that trusts whatever it is shown. */
export async function h2(
  cleanup: Cleanup,
  port: number,
  servername = 'shop.apps.localhost',
): Promise<ClientHttp2Session> {
  const session = http2.connect(`https://${servername}:${port}`, {
    servername,
    rejectUnauthorized: false,
    lookup: (_host, _options, done) => done(null, [{ address: '127.0.0.1', family: 4 }]),
  });
  session.on('error', () => undefined);
  cleanup.add(() => session.destroy());
  await new Promise((resolve, reject) => session.once('connect', resolve).once('error', reject));
  return session;
}

/** The head of an answer. */
export function head(stream: ClientHttp2Stream): Promise<IncomingHttpHeaders> {
  return new Promise((resolve, reject) => {
    stream.once('response', resolve).once('error', reject);
    stream.once('close', () => reject(new Error(`the stream was closed with ${stream.rstCode}`)));
  });
}

/** One request over a session. @throws when its stream is reset */
export async function ask2(
  session: ClientHttp2Session,
  path: string,
  headers: Record<string, string | string[]> = {},
  body?: Buffer | string,
): Promise<H2Answer> {
  const stream = session.request({ ':path': path, ...headers }, { endStream: body === undefined });
  let trailers: IncomingHttpHeaders = {};
  stream.on('trailers', (given) => (trailers = given));
  const answer = head(stream);
  if (body !== undefined) stream.end(body);
  const fields = await answer;
  const content = await buffer(stream);
  return {
    status: Number(fields[':status']),
    headers: fields,
    trailers,
    body: content,
    text: content.toString(),
  };
}

/** One frame (RFC 9113 section 4.1). */
export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const start = Buffer.alloc(9);
  start.writeUIntBE(payload.length, 0, 3);
  start[3] = type;
  start[4] = flags;
  start.writeUInt32BE(stream, 5);
  return Buffer.concat([start, payload]);
}

/** A field without compression (RFC 7541 section 6.2.2); at most 126 bytes each. */
export const field = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value, 'latin1'),
  ]);

export const DATA = 0;
export const HEADERS = 1;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const GOAWAY = 7;
export const CONTINUATION = 9;
export const END_STREAM = 1;
export const END_HEADERS = 4;

/** A connection whose frames are written by hand. */
export class RawH2 {
  private readonly parts: Buffer[] = [];
  closed = false;

  private constructor(readonly socket: TLSSocket) {
    socket.on('data', (chunk: Buffer) => this.parts.push(chunk));
    socket.on('error', () => undefined).on('close', () => (this.closed = true));
  }

  static async open(cleanup: Cleanup, port: number, servername = 'shop.apps.localhost'): Promise<RawH2> {
    const socket = tls.connect({
      host: '127.0.0.1',
      port,
      servername,
      rejectUnauthorized: false,
      ALPNProtocols: ['h2'],
    });
    cleanup.add(() => socket.destroy());
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
    const one = new RawH2(socket);
    socket.write(Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(SETTINGS, 0, 0)]));
    return one;
  }

  /** What has come so far. */
  frames(): { type: number; flags: number; stream: number; payload: Buffer }[] {
    const bytes = Buffer.concat(this.parts);
    const list = [];
    for (let at = 0; at + 9 <= bytes.length;) {
      const length = bytes.readUIntBE(at, 3);
      const payload = bytes.subarray(at + 9, at + 9 + length);
      list.push({ type: bytes[at + 3]!, flags: bytes[at + 4]!, stream: bytes.readUInt32BE(at + 5), payload });
      at += 9 + length;
    }
    return list;
  }

  /** Error codes of the GOAWAY frames that have come. */
  goneWith(): number[] {
    return this.frames()
      .filter(({ type }) => type === GOAWAY)
      .map(({ payload }) => payload.readUInt32BE(4));
  }

  /** Error codes of resets of one stream. */
  resets(stream: number): number[] {
    return this.frames()
      .filter((one) => one.type === RST_STREAM && one.stream === stream)
      .map(({ payload }) => payload.readUInt32BE(0));
  }
}

/** The fields of a plain GET, as a block. */
export const getBlock = (...more: Buffer[]): Buffer =>
  Buffer.concat([
    field(':method', 'GET'),
    field(':scheme', 'https'),
    field(':authority', 'shop.apps.localhost'),
    field(':path', '/'),
    ...more,
  ]);
