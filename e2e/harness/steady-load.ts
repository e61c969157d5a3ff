import { createHash, randomBytes } from 'node:crypto';
import { Agent, type IncomingMessage, request as httpRequest } from 'node:http';
import { type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** One request of a load; times in milliseconds of `performance.now()`. */
export interface Answer {
  sentAt: number;
  doneAt: number;
  /** What was asked, for the report of a failure. */
  what: string;
  /** 0: there was no answer. */
  status: number;
  /** Which start of the app answered. */
  start: string;
  version: string;
  epoch: string;
  /** Null when the answer was as it ought to be. */
  wrong: string | null;
}

/** One stream from its head to its end. */
export interface Stream {
  kind: 'server-sent events' | 'WebSocket';
  start: string;
  openedAt: number;
  endedAt: number;
  /** The app itself said goodbye, and nothing was missing before that. */
  whole: boolean;
  /** The end of what came. */
  tail: string;
  /** The test has ended it. */
  byUs: boolean;
}

/** Where the load goes: an edge, and the app's name in `Host`. */
interface Target {
  edgeUrl: string;
  host: string;
}

/**
 * Load on `fixtures/steady-server` through an edge: so many requests a second whatever becomes of those before (open loop),
 * on kept and on new connections, with and without bodies, fast and slow; beside them one event stream and one WebSocket,
 * opened again when they end.
 */
export class SteadyLoad {
  readonly answers: Answer[] = [];
  readonly streams: Stream[] = [];
  private readonly kept = new Agent({ keepAlive: true });
  private readonly under = new Set<Promise<void>>();
  private readonly sockets = new Set<{ destroy(): void }>();
  private running = true;
  private loops: Promise<void>[] = [];

  constructor(
    private readonly target: Target,
    private readonly perSecond: number,
  ) {}

  start(): void {
    this.loops = [this.sendAll(), this.keepOpen('server-sent events'), this.keepOpen('WebSocket')];
  }

  /** Sends no more and waits for what is under way. */
  async stop(): Promise<void> {
    this.running = false;
    for (const socket of this.sockets) socket.destroy();
    await Promise.all(this.loops);
    await Promise.all(this.under);
    this.kept.destroy();
  }

  private async sendAll(): Promise<void> {
    const begun = performance.now();
    for (let count = 0; this.running; count++) {
      const due = begun + (count * 1_000) / this.perSecond - performance.now();
      if (due > 0) await new Promise((resolve) => setTimeout(resolve, due));
      const work = this.ask(count).finally(() => this.under.delete(work));
      this.under.add(work);
    }
  }

  private async ask(count: number): Promise<void> {
    const sentAt = performance.now();
    const body = count % 4 === 1 ? randomBytes(1 + ((count * 613) % 60_000)) : null;
    const chunked = body !== null && count % 8 === 5;
    const isKept = count % 3 !== 0;
    // One in ten takes as long as a slow page; one in fifty longer than most.
    const ms = count % 50 === 7 ? 1_500 : count % 10 === 3 ? 200 : 0;
    const method = body ? (count % 16 === 9 ? 'PUT' : 'POST') : count % 40 === 6 ? 'HEAD' : 'GET';
    const what = `${count}: ${method} ${body?.length ?? 0} bytes${chunked ? ' in pieces' : ''}, ${ms} ms, ${isKept ? 'kept' : 'new'} connection`;
    const seen = await this.exchange(method, `/?ms=${ms}`, body, chunked, isKept).then(
      ({ answer, text }) => {
        const expected =
          method === 'HEAD'
            ? ''
            : createHash('sha256')
                .update(body ?? '')
                .digest('hex');
        const wrong = answer.statusCode !== 200 || text !== expected ? text.slice(0, 200) || 'empty' : null;
        return { status: answer.statusCode ?? 0, ...marksOf(answer), wrong };
      },
      (error: Error) => ({ status: 0, start: '', version: '', epoch: '', wrong: error.message }),
    );
    this.answers.push({ sentAt, doneAt: performance.now(), what, ...seen });
  }

  private exchange(
    method: string,
    path: string,
    body: Buffer | null,
    chunked: boolean,
    isKept: boolean,
  ): Promise<{ answer: IncomingMessage; text: string }> {
    return new Promise((resolve, reject) => {
      const length = body && !chunked ? { 'content-length': String(body.length) } : {};
      const call = httpRequest({
        ...this.address(path),
        agent: isKept ? this.kept : false,
        method,
        headers: { host: this.target.host, ...length },
      });
      call.once('response', (answer) =>
        buffer(answer).then((bytes) => resolve({ answer, text: bytes.toString() }), reject),
      );
      call.once('error', reject);
      if (!chunked || !body) return void call.end(body ?? undefined);
      call.write(body.subarray(0, 1_000));
      setTimeout(() => call.end(body.subarray(1_000)), 100);
    });
  }

  private async keepOpen(kind: Stream['kind']): Promise<void> {
    while (this.running) {
      const openedAt = performance.now();
      const { answer, body } = await (kind === 'WebSocket' ? this.webSocket() : this.events()).catch(() => ({
        answer: null,
        body: null,
      }));
      if (!answer || !body) {
        this.streams.push({
          kind,
          start: '',
          openedAt,
          endedAt: openedAt,
          whole: false,
          tail: '',
          byUs: !this.running,
        });
        await new Promise((resolve) => setTimeout(resolve, 100));
        continue;
      }
      this.sockets.add(body);
      const chunks: Buffer[] = [];
      body.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', () => undefined);
      await new Promise<void>((resolve) => body.once('close', () => resolve()));
      this.sockets.delete(body);
      const bytes = Buffer.concat(chunks);
      const whole = kind === 'WebSocket' ? isWholeWebSocket(bytes) : isWholeStream(bytes.toString());
      const { start } = marksOf(answer);
      this.streams.push({
        kind,
        start,
        openedAt,
        endedAt: performance.now(),
        whole,
        tail: bytes.subarray(-40).toString('latin1'),
        byUs: !this.running,
      });
    }
  }

  private events(): Promise<{ answer: IncomingMessage; body: IncomingMessage }> {
    return new Promise((resolve, reject) => {
      const call = httpRequest({
        ...this.address('/ticks'),
        headers: { host: this.target.host },
        agent: false,
      });
      call.once('response', (answer) => resolve({ answer, body: answer })).once('error', reject);
      call.end();
    });
  }

  private webSocket(): Promise<{ answer: IncomingMessage; body: Socket }> {
    return new Promise((resolve, reject) => {
      const headers = {
        host: this.target.host,
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
      };
      const call = httpRequest({ ...this.address('/'), headers, agent: false });
      call.once('upgrade', (answer, socket: Socket, head: Buffer) => {
        if (head.length > 0) socket.unshift(head);
        resolve({ answer, body: socket });
      });
      call.once('response', (answer) => reject(new Error(`answered ${answer.statusCode}`)));
      call.once('error', reject).end();
    });
  }

  private address(path: string) {
    const { hostname, port } = new URL(this.target.edgeUrl);
    return { host: hostname, port, path };
  }
}

const marksOf = ({ headers }: IncomingMessage) => ({
  start: String(headers['x-start'] ?? ''),
  version: String(headers['x-version'] ?? ''),
  epoch: String(headers['x-epoch'] ?? ''),
});

/** Ticks from 1 without a gap, then the goodbye. */
function isWholeStream(text: string): boolean {
  const ticks = [...text.matchAll(/^id: (\d+)$/gm)].map(([, count]) => Number(count));
  return ticks.every((count, at) => count === at + 1) && text.endsWith('event: bye\ndata: over\n\n');
}

/** The same in frames, which are all short here. */
function isWholeWebSocket(bytes: Buffer): boolean {
  let expected = 1;
  for (let at = 0; at + 1 < bytes.length;) {
    const kind = bytes[at]! & 0x0f;
    const end = at + 2 + bytes[at + 1]!;
    const payload = bytes.subarray(at + 2, end);
    if (kind === 8) return end === bytes.length && payload.equals(Buffer.from([0x03, 0xe9]));
    if (Number(payload.toString()) !== expected++) return false;
    at = end;
  }
  return false;
}
