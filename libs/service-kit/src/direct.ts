import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Type } from '@nestjs/common';
import { type Identity, identityHeader } from '@nebo/contracts';
import { type CountRequest, type Metrics, openSpan } from '@nebo/telemetry';
import type { FastifyInstance } from 'fastify';
import {
  ApiError,
  badRequest,
  type ErrorAnswer,
  errorAnswer,
  mayDrain,
  tooLarge,
  unauthorized,
  unavailable,
  unsupportedMediaType,
} from './errors.js';
import type { BodyRoom } from './body-room.js';
import { jsonText } from './json-body.js';
import type { Runtime } from './runtime.js';
import { largeBody, type Turns } from './turns.js';

/**
 * Operations that are answered past Fastify and Nest, because their cost per request is what the product is compared by.
 * They stay declared by a controller, which also serves `inject`; identity, body, errors, figures and spans are the same.
 */
export interface DirectOperations {
  /** POST paths without parameters, and the operation id that figures have. */
  routes: readonly { path: string; operation: string }[];
  /** Provider of the service's module that answers them. */
  handler: Type<DirectHandler>;
}

/** A request whose caller is known and whose body is parsed. */
export interface DirectRequest {
  /** Without its query. */
  path: string;
  id: string;
  identity: Identity;
  /** Parsed JSON, whatever it is; undefined when the body is empty. */
  body: unknown;
  /** For a large body: each step over all of it waits for its turn. Null: it is small. */
  turns: Turns | null;
}

export interface DirectHandler {
  /** Answers on the raw response, errors included. Must not throw. */
  answer(request: DirectRequest, response: ServerResponse): void;
}

/** Takes a request when it is one of its own. */
export type Front = (request: IncomingMessage, response: ServerResponse) => boolean;

/** What the front of a service is made from. */
export interface FrontParts {
  operations: DirectOperations;
  handler: DirectHandler;
  door: Identity['kind'];
  bodyLimit: number;
  fastify: FastifyInstance;
  metrics: Metrics;
  runtime: Pick<Runtime, 'signer' | 'log'>;
  /** Is there somewhere for traces to go? */
  traced: boolean;
  service: string;
  errorBody: (path: string, answer: ErrorAnswer) => object;
  /** Shared by all large bodies of the process. */
  turns: Turns;
  /** For all bodies on their way in. */
  room: BodyRoom;
}

/** The front of a service: false for all that Fastify is to answer. */
export function directFront(parts: FrontParts): Front {
  const counters = new Map<string, CountRequest>();
  for (const { path, operation } of parts.operations.routes)
    counters.set(path, parts.metrics.requests('POST', operation));
  return (request, response) => {
    const url = request.url!;
    const query = url.indexOf('?');
    const path = query < 0 ? url : url.slice(0, query);
    const count = counters.get(path);
    if (!count || request.method !== 'POST') return false;
    new Direct(parts, request, response, path, count).begin();
    return true;
  };
}

const noRoomWords = 'too much is being sent at once; try again in a moment';
const tooLargeWords = 'the body is larger than this operation takes';

/** May it be meant to poison a prototype? What holds neither name, nor an escape that could hide one, cannot. */
const isSuspicious = (text: string): boolean =>
  text.includes('__proto__') || text.includes('constructor') || text.includes('\\u00');

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw badRequest('bad_request', 'the request could not be read');
  }
}

/** Fastify's own parser refuses prototype poisoning; it looks at nothing of the request, and is synchronous. */
function safeParse(fastify: FastifyInstance, text: string): unknown {
  let value: unknown;
  void fastify.getDefaultJsonParser('error', 'error')(undefined as never, text, (error, parsed) => {
    if (error) throw error;
    value = parsed;
  });
  return value;
}

/** One request on its way to the handler. */
class Direct {
  private readonly id: string;
  private readonly startedAt = performance.now();
  private pieces: Buffer[] = [];
  private size = 0;

  constructor(
    private readonly parts: FrontParts,
    private readonly request: IncomingMessage,
    private readonly response: ServerResponse,
    private readonly path: string,
    private readonly count: CountRequest,
  ) {
    const given = request.headers['x-request-id'];
    this.id = typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID();
  }

  begin(): void {
    // What the client breaks off is not answered; the gateway counts it.
    this.response.once('finish', () =>
      this.count(this.response.statusCode, (performance.now() - this.startedAt) / 1_000),
    );
    if (this.parts.traced) this.trace();
    else this.read();
  }

  private trace(): void {
    const { request, response, path } = this;
    const parent = request.headers['traceparent'];
    const span = openSpan(
      `POST ${path}`,
      { 'nebo.service': this.parts.service, 'http.route': path, 'nebo.request_id': this.id },
      { parent: typeof parent === 'string' ? parent : null, kind: 'server' },
    );
    const end = () => {
      const { statusCode, writableFinished } = response;
      span.end({
        attributes: {
          'http.response.status_code': statusCode,
          ...(writableFinished ? {} : { 'nebo.broken_off': true }),
        },
        failed: statusCode >= 500,
      });
    };
    response.once('finish', end).once('close', end);
    // The body arrives in callbacks of its socket, where the context of the span is lost.
    this.read((work) => span.run(work));
  }

  private read(within: (work: () => void) => void = (work) => work()): void {
    const { request, parts } = this;
    const header = request.headers[identityHeader];
    const identity = parts.runtime.signer.read(typeof header === 'string' ? header : undefined);
    if (identity?.kind !== parts.door) return this.refuse(unauthorized());
    const refusal = this.headRefusal();
    if (refusal) return this.refuse(refusal);
    const account = ('account_id' in identity && identity.account_id) || '';
    let kept = 0;
    const leave = () => {
      parts.room.giveBack(account, kept);
      kept = 0;
    };
    let isRefused = false;
    const refuseBody = (error: ApiError) => {
      isRefused = true;
      request.removeAllListeners('data');
      this.pieces = [];
      leave();
      this.refuse(error);
    };
    request.on('data', (piece: Buffer) => {
      this.size += piece.length;
      if (this.size > parts.bodyLimit) return refuseBody(tooLarge(tooLargeWords));
      if (!parts.room.take(account, piece.length)) return refuseBody(unavailable(noRoomWords));
      kept += piece.length;
      this.pieces.push(piece);
    });
    request.once('end', () => {
      if (isRefused) return;
      leave();
      within(() => void this.parse(identity));
    });
    // A client that leaves while it sends: there is nobody to answer.
    request.on('error', leave);
  }

  private headRefusal(): ApiError | null {
    const { headers } = this.request;
    const length = headers['content-length'];
    if (length === '0' || (length === undefined && headers['transfer-encoding'] === undefined)) return null;
    const type = (headers['content-type'] ?? '').split(';', 1)[0]!.trim().toLowerCase();
    if (type !== 'application/json') return unsupportedMediaType('application/json');
    return Number(length) > this.parts.bodyLimit ? tooLarge(tooLargeWords) : null;
  }

  private async parse(identity: Identity): Promise<void> {
    const { handler, fastify, turns } = this.parts;
    const isLarge = this.size >= largeBody;
    const body = this.pieces.length === 1 ? this.pieces[0]! : Buffer.concat(this.pieces);
    this.pieces = [];
    const request = { path: this.path, id: this.id, identity, turns: isLarge ? turns : null };
    if (body.length === 0) return handler.answer({ ...request, body: undefined }, this.response);
    let value: unknown;
    try {
      // Three steps of megabytes in three turns; small ones in none.
      if (isLarge) await turns.next();
      const text = jsonText(body);
      if (isLarge) await turns.next();
      value = isSuspicious(text) ? safeParse(fastify, text) : parseJson(text);
      if (isLarge) await turns.next();
    } catch (error) {
      return this.refuse(error);
    }
    // Who left meanwhile needs no answer.
    if (!this.response.destroyed) handler.answer({ ...request, body: value }, this.response);
  }

  private refuse(error: unknown): void {
    const { request, response } = this;
    sendError(response, error, this.id, (answer) => this.parts.errorBody(this.path, answer));
    if (!request.complete && mayDrain(request.headers)) request.resume();
  }
}

/**
 * Answers an error on a raw response, in the shape of the operation; a stream that has begun is cut, so that it cannot be
 * taken for a whole one.
 * @returns the answer, for the log
 */
export function sendError(
  response: ServerResponse,
  error: unknown,
  requestId: string,
  shape: (answer: ErrorAnswer) => object,
): ErrorAnswer {
  const answer = errorAnswer(error, requestId);
  if (response.headersSent) response.destroy();
  else sendJson(response, answer.status, shape(answer), { ...answer.headers, 'x-request-id': requestId });
  return answer;
}

/** Answers JSON on a raw response, head and body in one write. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    ...headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}
