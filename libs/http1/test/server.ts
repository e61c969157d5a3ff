import { type AddressInfo, connect, createServer, type OnReadOpts, type Socket } from 'node:net';
import {
  type AnswerHandler,
  Http1Pool,
  type Http1PoolOptions,
  Http1Reactor,
  type Http1Request,
} from '../src/index.js';

/** Things to undo after a test. */
export type Undo = (() => void)[];

/** A server of raw sockets. */
export interface RawServer {
  port: number;
  /** All that it was connected by, in order. */
  sockets: Socket[];
  /** What came over each, Latin-1, one text a read. */
  reads: string[][];
}

/** A server that does with each connection what it is told. @param index of the connection */
export async function serve(
  undo: Undo,
  onConnection: (socket: Socket, index: number) => void,
): Promise<RawServer> {
  const sockets: Socket[] = [];
  const reads: string[][] = [];
  const server = createServer({ noDelay: true }, (socket) => {
    const index = sockets.push(socket.on('error', () => undefined)) - 1;
    reads.push([]);
    socket.on('data', (chunk) => reads[index]!.push(chunk.toString('latin1')));
    onConnection(socket, index);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  undo.push(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, sockets, reads };
}

/** A server that answers the n-th request, over whatever connection, with the n-th text, once it has come to an empty line. */
export function answering(undo: Undo, ...texts: string[]): Promise<RawServer> {
  let turn = 0;
  return serve(undo, (socket) => {
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      while (text.includes('\r\n\r\n')) {
        text = text.slice(text.indexOf('\r\n\r\n') + 4);
        socket.write(Buffer.from(texts[Math.min(turn++, texts.length - 1)]!, 'latin1'));
      }
    });
  });
}

/** Connections with limits that a test can wait for. */
export function pool(
  undo: Undo,
  more: Partial<Http1PoolOptions<{ host: string; port: number }>> = {},
): Http1Pool {
  const reactor = new Http1Reactor(20);
  const made = new Http1Pool({
    reactor,
    connect: ({ host, port }, onread: OnReadOpts) => connect({ host, port, onread, noDelay: true }),
    connectMs: 5_000,
    answerMs: 10_000,
    idleMs: 4_000,
    ...more,
  });
  undo.push(() => {
    made.destroy();
    reactor.stop();
  });
  return made;
}

export interface Answer {
  status: number;
  fields: string[];
  body: string;
  trailers: string[];
}

/** Notes an answer. */
export class Noted implements AnswerHandler {
  readonly answer: Answer = { status: 0, fields: [], body: '', trailers: [] };
  /** What was told, in order. */
  readonly told: string[] = [];
  readonly done: Promise<Answer>;
  private resolve!: (answer: Answer) => void;
  private reject!: (error: Error) => void;

  constructor(private readonly onDataToo: () => void = () => undefined) {
    this.done = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.done.catch(() => undefined);
  }

  onHead(status: number, _reason: string, fields: string[]): void {
    this.told.push('head');
    Object.assign(this.answer, { status, fields });
  }

  onData(bytes: Buffer, start: number, end: number): void {
    this.told.push('data');
    this.answer.body += bytes.toString('latin1', start, end);
    this.onDataToo();
  }

  onQuiet(): void {
    this.told.push('quiet');
  }

  onEnd(trailers: readonly string[]): void {
    this.told.push('end');
    this.answer.trailers = [...trailers];
    this.resolve(this.answer);
  }

  onError(error: Error): void {
    this.told.push('error');
    this.reject(error);
  }
}

const get: Http1Request = { method: 'GET', path: '/', headers: ['Host', 'app'], body: null };

/** Sends a request to a port of this host. */
export function ask(
  from: Http1Pool,
  port: number,
  more: Partial<Http1Request> = {},
  handler = new Noted(),
  maxIdleMs?: number,
): Noted & { connection: ReturnType<Http1Pool['send']> } {
  const connection = from.send({ host: '127.0.0.1', port }, { ...get, ...more }, handler, maxIdleMs);
  return Object.assign(handler, { connection });
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean): Promise<void> {
  const end = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not in time: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
