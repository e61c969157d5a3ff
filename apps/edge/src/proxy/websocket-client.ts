import { createHash, randomBytes } from 'node:crypto';
import { type IncomingMessage, ServerResponse } from 'node:http';
import { type Http2ServerRequest } from 'node:http2';
import { type Socket } from 'node:net';
import { type Duplex } from 'node:stream';

/** The side of a WebSocket that asks, over HTTP/1.1 or HTTP/2. */
export interface WebSocketClient {
  /** What the frames go over, once it is open. */
  readonly stream: Duplex;
  /** Bytes that came along with the handshake. */
  readonly head: Buffer;
  /** Fields that the handshake with a replica needs and the client has not sent. */
  readonly more: readonly string[];
  /**
   * Says that it is open. @param headers of the replica's 101, flat
   * @returns false when the replica's answer does not fit, and nothing was said
   */
  open(headers: readonly string[]): boolean;
  /** For any other answer; asked for once. */
  plainly(): ServerResponse;
}

/** By an upgrade of the connection (RFC 6455); its server has given the socket away. */
export class Http1WebSocket implements WebSocketClient {
  readonly more = [];

  constructor(
    private readonly req: IncomingMessage,
    readonly stream: Duplex,
    readonly head: Buffer,
  ) {}

  open(headers: readonly string[]): boolean {
    const lines = ['HTTP/1.1 101 Switching Protocols', 'Connection: Upgrade', 'Upgrade: websocket'];
    for (let i = 0; i < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`);
    this.stream.write(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));
    return true;
  }

  plainly(): ServerResponse {
    const { stream } = this;
    const res = new ServerResponse(this.req);
    res.shouldKeepAlive = false;
    res.assignSocket(stream as Socket);
    res.once('finish', () => {
      res.detachSocket(stream as Socket);
      stream.end();
    });
    stream.once('close', () => res.destroy());
    return res;
  }
}

/** Appended to a key before it is hashed (RFC 6455 section 4.2.2). */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** By a stream of a connection of HTTP/2 (RFC 8441): key and its confirmation are between the edge and the replica. */
export class Http2WebSocket implements WebSocketClient {
  readonly head = Buffer.alloc(0);
  readonly more: readonly string[];
  private readonly accept: string;

  constructor(
    private readonly req: Http2ServerRequest,
    private readonly answer: ServerResponse,
  ) {
    const key = randomBytes(16).toString('base64');
    this.more = ['Sec-WebSocket-Key', key];
    this.accept = createHash('sha1')
      .update(key + GUID)
      .digest('base64');
  }

  get stream(): Duplex {
    return this.req.stream;
  }

  open(headers: readonly string[]): boolean {
    const fields: Record<string, string | string[]> = {};
    let accepted = '';
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i]!.toLowerCase();
      const value = headers[i + 1]!;
      if (name === 'sec-websocket-accept') accepted = value;
      else fields[name] = fields[name] === undefined ? value : [fields[name], value].flat();
    }
    if (accepted !== this.accept) return false;
    this.req.stream.respond({ ...fields, ':status': 200 });
    return true;
  }

  plainly(): ServerResponse {
    return this.answer;
  }
}

/** The same client, of which more was read already. */
export function withHead(client: WebSocketClient, more: Buffer): WebSocketClient {
  if (more.length === 0) return client;
  const head = Buffer.concat([client.head, more]);
  return {
    stream: client.stream,
    head,
    more: client.more,
    open: (headers) => client.open(headers),
    plainly: () => client.plainly(),
  };
}
