import { createReadStream } from 'node:fs';
import type { Socket } from 'node:net';
import type { Agent, ClientRequest, IncomingMessage, RequestOptions } from 'node:http';

/** A body that can be sent again: a retry starts from its first byte. */
export type WireBody =
  | { kind: 'bytes'; bytes: Buffer }
  /** Streamed from disk in chunks. `onSent` hears how many bytes of the file were handed over so far. */
  | { kind: 'file'; path: string; onSent?: ((bytes: number) => void) | undefined };

export interface WireRequest {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body?: WireBody | undefined;
  signal: AbortSignal;
  /** Longest silence of the connection, in milliseconds; for streams too. */
  idleMs: number;
}

/** There was no whole answer: refused, reset, unknown host, silence, bad certificate. */
export class ConnectionBroken extends Error {
  constructor(
    /** The system's word, such as ECONNREFUSED. */
    readonly code: string,
    message: string,
    /** False when trying again cannot help. */
    readonly temporary: boolean,
  ) {
    super(message);
    this.name = 'ConnectionBroken';
  }
}

const hopeless = /^(ENOTFOUND|ERR_TLS|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|ERR_INVALID|EPROTO|NO_ANSWER)/;

/** A thrown socket error in one form; the reason of an abort as it is. */
export function broken(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof ConnectionBroken) return error;
  const { code = 'BROKEN', message } = error as NodeJS.ErrnoException;
  return new ConnectionBroken(code, message || code, !hopeless.test(code));
}

/** One HTTP exchange after another with one server; holds the connections. */
export class Transport {
  private readonly agents = new Map<string, Agent>();

  /** @param env for HTTP_PROXY, HTTPS_PROXY and NO_PROXY, which Node itself reads since 24.5 */
  constructor(private readonly env: Readonly<Record<string, string | undefined>>) {}

  /**
   * Sends one request and resolves with the answer's head; redirects are not followed, since the key would follow too.
   * @throws ConnectionBroken, or the signal's reason
   */
  async send(request: WireRequest): Promise<IncomingMessage> {
    const { method, url, headers, body, signal, idleMs } = request;
    signal.throwIfAborted();
    const secure = url.protocol === 'https:';
    // Loaded here: a `nebo --help` needs no network code.
    const http = secure ? await import('node:https') : await import('node:http');
    const options: RequestOptions = {
      method,
      headers: {
        ...headers,
        ...(body?.kind === 'bytes' ? { 'content-length': String(body.bytes.length) } : {}),
      },
      signal,
      timeout: idleMs,
      // A kept connection may die under a request; only a GET is safe to repeat without a thought.
      agent: await this.agent(secure, url, method === 'GET'),
    };
    return new Promise((resolve, reject) => {
      const out = http.request(url, options);
      let answered = false;
      out.once('response', (answer) => {
        answered = true;
        resolve(answer);
      });
      out.once('timeout', () => {
        out.destroy(new ConnectionBroken('NO_ANSWER', `no byte came for ${idleMs / 1000} s`, false));
      });
      out.on('error', (error) => {
        if (!answered) reject(broken(error, signal));
      });
      if (body?.kind === 'file') out.once('socket', hearOut);
      if (body?.kind === 'file') sendFile(out, body);
      else out.end(body?.bytes);
    });
  }

  /** Lets the connections go. */
  close(): void {
    for (const agent of this.agents.values()) agent.destroy();
    this.agents.clear();
  }

  private async agent(secure: boolean, url: URL, keepAlive: boolean): Promise<Agent> {
    const name = `${secure} ${keepAlive}`;
    const known = this.agents.get(name);
    if (known) return known;
    // Whatever the proxy settings say, this machine is reached directly.
    const loopback = /^(localhost|127(\.\d+){3}|\[::1\]|.*\.localhost)$/.test(url.hostname);
    const options = { keepAlive, ...(loopback ? {} : { proxyEnv: this.env as NodeJS.ProcessEnv }) };
    const { Agent: Made } = secure ? await import('node:https') : await import('node:http');
    const agent = new Made(options);
    this.agents.set(name, agent);
    return agent;
  }
}

/**
 * A server may refuse an upload before its end and close: then the next write fails, and Node drops what it reads from
 * a socket with a failed write, the refusal too (45 of 60 were lost in a trial). The refusal is what the user must see,
 * so a failed write is told a moment later.
 */
function hearOut(socket: Socket): void {
  type Told = (error?: Error | null) => void;
  const late =
    (told: Told): Told =>
    (error) => {
      if (error) setTimeout(() => told(error), 250);
      else told();
    };
  const { _write: write, _writev: writev } = socket;
  socket._write = (chunk, encoding, told) => write.call(socket, chunk, encoding, late(told));
  if (writev) socket._writev = (chunks, told) => writev.call(socket, chunks, late(told));
}

function sendFile(
  out: ClientRequest,
  body: { path: string; onSent?: ((bytes: number) => void) | undefined },
): void {
  const file = createReadStream(body.path, { highWaterMark: 256 * 1024 });
  let sent = 0;
  file.on('data', (chunk) => body.onSent?.((sent += chunk.length)));
  file.once('error', (error) => out.destroy(error));
  out.once('close', () => file.destroy());
  out.once('response', () => file.unpipe(out));
  file.pipe(out);
}

/** The whole body as text. @throws ConnectionBroken when it was cut */
export async function bodyText(answer: IncomingMessage, signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of answer) chunks.push(chunk as Buffer);
  } catch (error) {
    throw broken(error, signal);
  }
  return Buffer.concat(chunks).toString('utf8');
}
