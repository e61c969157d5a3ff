import { type IncomingMessage, request } from 'node:http';
import { type Readable } from 'node:stream';

/** Nobody answers at the engine's socket, or it stopped in the middle of an answer. */
export class EngineGone extends Error {
  override readonly name = 'EngineGone';
}

/** The engine says no. `message` is its own text. */
export class EngineRefused extends Error {
  override readonly name = 'EngineRefused';

  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface EngineCall {
  /** Parameters of the address; undefined ones are left out. */
  query?: Readonly<Record<string, string | undefined>>;
  body?: Readable;
  /** Ends the call, and with it what the engine does for it. */
  signal?: AbortSignal;
  /** Milliseconds without a byte after which the engine is taken to be gone; default: none. */
  idleMs?: number;
}

/** Most bytes of an answer that is read whole. */
const maxAnswer = 16 * 1024 * 1024;

/** The HTTP API of a container engine (Docker's, which Podman answers too) over its Unix socket. */
export class EngineClient {
  constructor(readonly socket: string) {}

  /**
   * An answer as it comes; read it to its end or destroy it.
   * @throws EngineGone, EngineRefused, the signal's reason
   */
  async open(method: string, path: string, call: EngineCall = {}): Promise<IncomingMessage> {
    const answer = await this.send(method, path, call);
    if ((answer.statusCode ?? 500) < 400) return answer;
    const text = (await collect(answer).catch(() => Buffer.alloc(0))).toString('utf8');
    throw new EngineRefused(answer.statusCode ?? 500, reasonIn(text));
  }

  /** A JSON answer; null where there is none. @throws as `open` */
  async json<T>(method: string, path: string, call: EngineCall = {}): Promise<T | null> {
    const answer = await this.open(method, path, { idleMs: 30_000, ...call });
    const text = (await collect(answer).catch((error) => this.failed(error, call.signal))).toString('utf8');
    try {
      return text.trim() === '' ? null : (JSON.parse(text) as T);
    } catch {
      throw new EngineRefused(answer.statusCode ?? 500, 'its answer is no JSON');
    }
  }

  /** Bytes of an answer, whose end in the middle is said as one. */
  async *bytes(answer: IncomingMessage, signal?: AbortSignal): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of answer as AsyncIterable<Buffer>) yield chunk;
    } catch (error) {
      this.failed(error, signal);
    } finally {
      answer.destroy();
    }
  }

  private send(method: string, path: string, { query, body, signal, idleMs }: EngineCall) {
    const search = new URLSearchParams(
      Object.entries(query ?? {}).filter((entry): entry is [string, string] => entry[1] !== undefined),
    );
    return new Promise<IncomingMessage>((resolve, reject) => {
      const fail = (error: unknown) => {
        body?.destroy();
        try {
          this.failed(error, signal);
        } catch (reason) {
          reject(reason as Error);
        }
      };
      const call = request(
        {
          ...{ socketPath: this.socket, method, agent: false },
          path: search.size > 0 ? `${path}?${search}` : path,
          headers: { host: 'engine', ...(body ? { 'content-type': 'application/x-tar' } : {}) },
          ...(signal ? { signal } : {}),
        },
        resolve,
      );
      call.on('error', fail);
      if (idleMs !== undefined) call.setTimeout(idleMs, () => call.destroy(new Error('it does not answer')));
      if (!body) return void call.end();
      body.on('error', (error) => call.destroy(error));
      // An engine that refuses early reads no further; its answer is what counts.
      call.on('close', () => body.destroy());
      body.pipe(call);
    });
  }

  private failed(error: unknown, signal?: AbortSignal): never {
    signal?.throwIfAborted();
    throw new EngineGone(
      `the container engine at ${this.socket} does not answer: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
}

async function collect(answer: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of answer) {
    size += part.length;
    if (size > maxAnswer) throw new Error('its answer is too long');
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function reasonIn(text: string): string {
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    if (typeof message === 'string') return message;
  } catch {
    // Not every answer is JSON.
  }
  return text.slice(0, 1_000) || 'it says no reason';
}
