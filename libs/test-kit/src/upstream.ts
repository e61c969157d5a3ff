import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { noteLive } from './parts.js';
import { framesOf, plainBody } from './upstream-frames.js';
import {
  noHabits,
  type UpstreamDialect,
  type UpstreamHabits,
  upstreamHabits,
  vendorRefusal,
} from './upstream-habits.js';

/** One request as the model upstream saw it. */
export interface UpstreamRequest {
  /** Counts from 1. */
  number: number;
  method: string;
  path: string;
  headers: Record<string, string | string[] | undefined>;
  /** The body as text. */
  text: string;
  /** The body parsed, or null when it is no JSON object. */
  body: Record<string, unknown> | null;
  /** When the request was complete, milliseconds since 1970. */
  at: number;
  /** Did the client leave before the answer was complete? Settled by the time `answered` resolves. */
  aborted: boolean;
  /** Resolves when the answer has ended or the client has left. */
  answered: Promise<void>;
}

/** Counters as OpenAI-compatible providers report them; further fields are passed on. */
export interface UpstreamUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens?: number;
  [field: string]: unknown;
}

/** How to answer one request; what is left out has a sensible default. Milliseconds and counts. */
export interface UpstreamAnswer {
  /** Status and body of an error (or any other plain answer); `body` objects are sent as JSON. */
  status?: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** The text, as the pieces that the stream sends one by one. Default ['Hello', ' from', ' the', ' upstream', '.']. */
  chunks?: readonly string[];
  /** Reasoning text that is sent before the text, field `reasoning_content`. */
  reasoning?: readonly string[];
  /** `tool_calls` of the message; streamed as one delta. */
  toolCalls?: readonly Record<string, unknown>[];
  finishReason?: string;
  /** Counters; null = the provider sends none. Default: counted from the chunks. */
  usage?: UpstreamUsage | null;
  /** Send the usage chunk of a stream: as asked (`stream_options.include_usage`, the default), always or never. */
  usageChunk?: 'asked' | 'always' | 'never';
  /** Wait before the first byte. */
  delay?: number;
  /** Wait before each further chunk. */
  chunkDelay?: number;
  /** Destroy the connection after so many chunks of the stream (0 = after the headers). */
  cutAfter?: number;
  /** Destroy the connection without any answer. */
  refuse?: boolean;
  /** Never answer; the request ends when the client leaves. */
  hang?: boolean;
  /** Streams: leave out `data: [DONE]`. */
  withoutDone?: boolean;
  /** Streams: these raw bytes instead of chunks, for odd framing (CRLF, comments, split UTF-8). */
  raw?: readonly (string | Buffer)[];
  /** Takes over completely. */
  handle?: (
    request: IncomingMessage,
    response: ServerResponse,
    seen: UpstreamRequest,
  ) => void | Promise<void>;
}

/** What a script gives for one request; undefined = the default answer. */
export type UpstreamScript = (
  request: UpstreamRequest,
) => UpstreamAnswer | undefined | Promise<UpstreamAnswer | undefined>;

/** A programmable provider with the OpenAI wire form on 127.0.0.1. */
export interface UpstreamModel {
  /** `http://127.0.0.1:<port>/v1` */
  readonly url: string;
  /** Every request since the start or `reset`, in the order of arrival. */
  readonly requests: readonly UpstreamRequest[];
  /** Number of chat completion calls. */
  calls(): number;
  /** Answers each following request as `fn` says. */
  script(fn: UpstreamScript): void;
  /** Answers the next requests with these, one each, before the script. */
  next(...answers: UpstreamAnswer[]): void;
  /** Forgets requests, script and queued answers. */
  reset(): void;
  stop(): Promise<void>;
}

/**
 * Starts a model upstream: `POST /v1/chat/completions` (plain and streamed) and `GET /v1/models`. With a `dialect` it has
 * that vendor's habits: the shape of its answers, and 400 for what it does not take, before any script is asked.
 */
export async function startUpstreamModel(
  options: { models?: readonly string[]; dialect?: UpstreamDialect } = {},
): Promise<UpstreamModel> {
  const models = options.models ?? ['test-model'];
  const habits = options.dialect === undefined ? noHabits : upstreamHabits[options.dialect];
  const requests: UpstreamRequest[] = [];
  const queue: UpstreamAnswer[] = [];
  let script: UpstreamScript = () => undefined;
  let count = 0;
  const server = createServer((request, response) => {
    serve(request, response).catch((error: Error) => {
      if (!response.headersSent) sendJson(response, 500, { error: { message: `script: ${error.message}` } });
      else response.destroy();
    });
  });
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const text = Buffer.concat(parts).toString('utf8');
    count += 1;
    const seen: UpstreamRequest = {
      number: count,
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      text,
      body: parseObject(text),
      at: Date.now(),
      aborted: false,
      answered: new Promise((resolve) =>
        response.on('close', () => {
          seen.aborted = !response.writableFinished && !cut.has(response);
          resolve();
        }),
      ),
    };
    requests.push(seen);
    if (seen.path === '/v1/models') {
      return sendJson(response, 200, {
        object: 'list',
        data: models.map((id) => ({ id, object: 'model', owned_by: 'test' })),
      });
    }
    const refusal = options.dialect === undefined ? null : vendorRefusal(seen.body, habits);
    if (refusal !== null) return sendJson(response, refusal.status, refusal.body);
    const answer = queue.shift() ?? (await script(seen)) ?? {};
    await give(answer, seen, request, response, habits, cut);
  };
  const cut = new WeakSet<ServerResponse>();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  server.unref();
  const stop = async () => {
    forget();
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  const forget = noteLive(stop);
  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    calls: () => requests.filter((request) => request.path.endsWith('/chat/completions')).length,
    script: (fn) => void (script = fn),
    next: (...answers) => void queue.push(...answers),
    reset() {
      requests.length = 0;
      queue.length = 0;
      count = 0;
      script = () => undefined;
    },
    stop,
  };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const raw = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(raw);
}

async function give(
  answer: UpstreamAnswer,
  seen: UpstreamRequest,
  request: IncomingMessage,
  response: ServerResponse,
  habits: UpstreamHabits,
  cut: WeakSet<ServerResponse>,
): Promise<void> {
  if (answer.handle !== undefined) return answer.handle(request, response, seen);
  if (answer.delay !== undefined) await sleep(answer.delay);
  if (response.destroyed || answer.hang) return;
  const destroy = () => {
    cut.add(response);
    request.socket.destroy();
  };
  if (answer.refuse) return destroy();
  const status = answer.status ?? 200;
  if (answer.body !== undefined || status >= 400) {
    return sendJson(
      response,
      status,
      answer.body ?? { error: { message: `status ${status}`, type: 'test' } },
      answer.headers,
    );
  }
  if (seen.body?.['stream'] === true) return stream(answer, seen, response, habits, destroy);
  if (answer.cutAfter !== undefined) {
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': '1000',
      ...answer.headers,
    });
    response.write('{"id":"', destroy);
    return;
  }
  sendJson(response, status, plainBody(answer, seen, habits), answer.headers);
}

async function stream(
  answer: UpstreamAnswer,
  seen: UpstreamRequest,
  response: ServerResponse,
  habits: UpstreamHabits,
  destroy: () => void,
): Promise<void> {
  const frames = framesOf(answer, seen, habits);
  const rest: readonly (string | Buffer)[] = answer.raw ?? [...frames.body, ...frames.ending];
  const write = (data: string | Buffer) =>
    new Promise<void>((resolve) => response.write(data, () => resolve()));
  response.writeHead(answer.status ?? 200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-cache',
    ...answer.headers,
  });
  response.flushHeaders();
  if (answer.raw === undefined) await write(frames.opening);
  for (const [index, frame] of rest.entries()) {
    if (answer.cutAfter === index) return destroy();
    if (index > 0 && answer.chunkDelay !== undefined) await sleep(answer.chunkDelay);
    if (response.destroyed) return;
    await write(frame);
  }
  if (answer.cutAfter !== undefined) return destroy();
  response.end();
}
