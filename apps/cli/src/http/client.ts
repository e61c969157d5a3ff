import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { maskedKey } from '../core/settings.js';
import { type Talk } from '../core/talk.js';
import { failureOf, keyHint, unreachable } from './failures.js';
import { bodyText, broken, ConnectionBroken, Transport, type WireBody } from './transport.js';

export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

export interface Call {
  method: string;
  /** Below the API's address, with ids already encoded (see `at`). */
  path: string;
  query?: Query | undefined;
  body?: WireBody | undefined;
  contentType?: string | undefined;
  accept?: string;
  /** Ends the call; the client's own signal when absent. */
  signal?: AbortSignal | undefined;
}

export interface Answer {
  status: number;
  reason: string;
  headers: IncomingMessage['headers'];
  text: string;
}

export interface ClientOptions {
  apiUrl: string;
  key: string | null;
  talk: Talk;
  signal: AbortSignal;
  env: Readonly<Record<string, string | undefined>>;
  /** Longest silence in milliseconds. */
  idleMs: number;
  version: string;
}

/** The page size of every list: the largest that the contract allows. */
const pageSize = 200;
const pauses = [300, 900, 2700];
/** Longer than this is not waited for by itself: the user decides. Seconds. */
const longestRetryAfter = 60;

/** A path with its ids encoded: at`/apps/${id}/env`. */
export function at(texts: TemplateStringsArray, ...ids: string[]): string {
  return texts.reduce((path, text, index) => path + encodeURIComponent(ids[index - 1]!) + text);
}

/** The control API: bearer key, retries with an Idempotency-Key on every POST, errors as CliError. */
export class ApiClient {
  private readonly transport: Transport;

  constructor(private readonly options: ClientOptions) {
    this.transport = new Transport(options.env);
  }

  /** The address of the API, ending in `/v1`. */
  get apiUrl(): string {
    return this.options.apiUrl;
  }

  /** GET of one record. @throws CliError */
  async get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
    return this.parse<T>(await this.ok({ method: 'GET', path, query, signal }), path);
  }

  /** POST, PATCH or PUT of a JSON body. @throws CliError */
  async write<T>(method: 'POST' | 'PATCH' | 'PUT', path: string, body?: unknown): Promise<T> {
    const answer = await this.ok({ method, path, ...jsonBody(body) });
    return this.parse<T>(answer, path);
  }

  /** POST of a file, streamed. @throws CliError */
  async upload<T>(
    path: string,
    file: string,
    contentType: string,
    onSent?: (bytes: number) => void,
  ): Promise<T> {
    const answer = await this.ok({
      method: 'POST',
      path,
      contentType,
      body: { kind: 'file', path: file, onSent },
    });
    return this.parse<T>(answer, path);
  }

  /** DELETE. @throws CliError */
  async remove(path: string): Promise<void> {
    await this.ok({ method: 'DELETE', path });
  }

  /**
   * The whole list, page by page; a short page is the last one (`count` is the size of the page, never the total).
   * @throws CliError
   */
  async list<T>(path: string, query: Query = {}): Promise<T[]> {
    const all: T[] = [];
    for (;;) {
      const page = await this.get<{ data?: T[] }>(path, { ...query, limit: pageSize, offset: all.length });
      if (!Array.isArray(page?.data)) throw notOurs(this.apiUrl, path);
      all.push(...page.data);
      if (page.data.length < pageSize) return all;
    }
  }

  /** An answer with status 2xx. @throws CliError for any other */
  async ok(call: Call): Promise<Answer> {
    const answer = await this.exchange(call);
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw failureOf(answer.status, answer.headers, answer.text);
  }

  /** An answer of any status, after retries. @throws CliError when none came */
  async exchange(call: Call): Promise<Answer> {
    const signal = call.signal ?? this.options.signal;
    const head = await this.open(call);
    try {
      const text = await bodyText(head, signal);
      return { status: head.statusCode ?? 0, reason: head.statusMessage ?? '', headers: head.headers, text };
    } catch (error) {
      if (error instanceof ConnectionBroken) throw unreachable(error, new URL(this.apiUrl).origin);
      throw error;
    }
  }

  /**
   * The head of an answer, its body still to be read; refusals worth repeating were repeated.
   * @throws CliError when no answer came
   */
  async open(call: Call): Promise<IncomingMessage> {
    const { talk } = this.options;
    const signal = call.signal ?? this.options.signal;
    // One key for all tries: the server answers a repeat with what the first try made.
    const idempotencyKey = call.method === 'POST' ? crypto.randomUUID() : null;
    for (let tries = 0; ; tries++) {
      let pause = pauses[tries];
      let why: string;
      try {
        const answer = await this.once(call, idempotencyKey, signal);
        const retryAfter = secondsOf(answer.headers['retry-after']);
        if (pause === undefined || !worthAgain(call.method, answer) || (retryAfter ?? 0) > longestRetryAfter)
          return answer;
        if (retryAfter !== null) pause = retryAfter * 1000;
        why = String(answer.statusCode);
        answer.resume();
      } catch (error) {
        if (!(error instanceof ConnectionBroken)) throw error;
        const again = (call.method === 'GET' || call.method === 'POST') && error.temporary;
        if (pause === undefined || !again) throw unreachable(error, new URL(this.apiUrl).origin);
        why = error.code;
      }
      talk.notice(
        `${why} from ${new URL(this.apiUrl).host}, trying again (${tries + 1} of ${pauses.length})`,
      );
      await rest(pause, signal);
    }
  }

  /** Lets the connections go. */
  close(): void {
    this.transport.close();
  }

  /** The URL of a call. */
  urlOf(call: Pick<Call, 'path' | 'query'>): URL {
    const url = new URL(this.apiUrl + call.path);
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value === undefined) continue;
      for (const one of Array.isArray(value) ? (value as string[]) : [String(value)])
        url.searchParams.append(name, one);
    }
    return url;
  }

  private async once(
    call: Call,
    idempotencyKey: string | null,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const { key, talk, version, idleMs } = this.options;
    if (key === null) {
      throw new CliError(exitCodes.key, 'no_key', `There is no key for ${this.apiUrl}`, {
        hint: keyHint,
      });
    }
    const url = this.urlOf(call);
    const headers: Record<string, string> = {
      authorization: `Bearer ${key}`,
      accept: call.accept ?? 'application/json',
      'user-agent': `nebo/${version} node/${process.versions.node}`,
    };
    if (call.body && call.contentType) headers['content-type'] = call.contentType;
    if (idempotencyKey) headers['idempotency-key'] = idempotencyKey;
    if (!call.body && call.method !== 'GET') headers['content-length'] = '0';
    const began = performance.now();
    const tell = (what: string) =>
      talk.debug(
        `${call.method} ${url} ${what} ${Math.round(performance.now() - began)} ms, key ${maskedKey(key)}`,
      );
    try {
      const answer = await this.transport.send({
        method: call.method,
        url,
        headers,
        body: call.body,
        signal,
        idleMs,
      });
      tell(`${answer.statusCode} request ${String(answer.headers['x-request-id'] ?? '-')}`);
      return answer;
    } catch (error) {
      const known = broken(error, signal);
      if (known instanceof ConnectionBroken) tell(known.code);
      throw known;
    }
  }

  private parse<T>(answer: Answer, path: string): T {
    if (answer.status === 204 || answer.text === '') return undefined as T;
    try {
      return JSON.parse(answer.text) as T;
    } catch {
      throw notOurs(this.apiUrl, path);
    }
  }
}

/** A JSON body for a call, or nothing. */
export function jsonBody(value: unknown): Pick<Call, 'body' | 'contentType'> {
  if (value === undefined) return {};
  return {
    body: { kind: 'bytes', bytes: Buffer.from(JSON.stringify(value)) },
    contentType: 'application/json',
  };
}

function worthAgain(method: string, answer: IncomingMessage): boolean {
  const status = answer.statusCode ?? 0;
  // A refusal by the limiter did nothing, whatever the method.
  if (status === 429) return true;
  if (method !== 'GET' && method !== 'POST') return false;
  // 409 with Retry-After: the first try of this very POST is still at work (idempotency_in_progress).
  return (
    status === 502 ||
    status === 503 ||
    status === 504 ||
    (status === 409 && answer.headers['retry-after'] !== undefined)
  );
}

function secondsOf(header: string | undefined): number | null {
  if (header === undefined) return null;
  if (/^\d+$/.test(header)) return Number(header);
  const date = Date.parse(header);
  return Number.isNaN(date) ? null : Math.max(0, Math.ceil((date - Date.now()) / 1000));
}

/** Sleeps; an abort ends it with the signal's reason. @param ms milliseconds */
export async function rest(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch {
    signal.throwIfAborted();
  }
}

function notOurs(apiUrl: string, path: string): CliError {
  return new CliError(
    exitCodes.service,
    'not_the_api',
    `The answer of ${apiUrl}${path} is not what the API answers`,
    {
      hint: 'Is --api-url (NEBO_API_URL) the address of a Nebo API? "nebo doctor" looks closer.',
    },
  );
}
