import type { IncomingMessage, ServerResponse } from 'node:http';
import { identityHeader, type InferenceIdentity, type OperationTable } from '@nebo/contracts';
import { ApiError, type Targets, unauthorized, unknownOperation } from '@nebo/service-kit';
import type { KeyCache } from '../keys/key-cache.js';
import type { RateLimiter } from '../limits/rate-limiter.js';
import { type ErrorShape, writeError } from './answers.js';
import { bearerOf, count } from './bearer.js';
import { stripInternalHeaders, takeRequestId } from './request-id.js';

/** What the inference door works with. */
export interface AiDoorParts {
  table: OperationTable;
  keys: KeyCache;
  /** Null: no limit, the default of this door. */
  limiter: RateLimiter | null;
  targets: Targets;
  isInferenceKey(key: string): boolean;
  errorShape: ErrorShape;
  onError(error: unknown, request: IncomingMessage): void;
  onDone(operation: string, response: ServerResponse, startedAt: number): void;
}

/** Paths that agents ask at start, without a key, only to see that somebody answers. */
const probes = new Set(['/', '/api/hello', '/healthz']);

/**
 * The door of `{ai_url}`: authenticates inference keys and forwards the untouched body; inference-router answers all else.
 * Errors have the shape of the path's format (interfaces.md, 4).
 */
export class AiDoor {
  constructor(private readonly parts: AiDoorParts) {}

  handle = (request: IncomingMessage, response: ServerResponse): void => {
    const requestId = takeRequestId(request);
    stripInternalHeaders(request);
    // `x-request-id` stands in every answer of the service; a header that is set before makes node:http write heads slower.
    // Clients of the messages format show this one to their users, refusals included.
    if (request.url!.startsWith('/v1/messages')) response.setHeader('request-id', requestId);
    const fail = (error: unknown) => {
      if (!(error instanceof ApiError) || error.status >= 500) this.parts.onError(error, request);
      writeError(request, response, error, requestId, this.parts.errorShape);
    };
    try {
      this.route(request, response, requestId, fail);
    } catch (error) {
      fail(error);
    }
  };

  private route(
    request: IncomingMessage,
    response: ServerResponse,
    requestId: string,
    fail: (error: unknown) => void,
  ): void {
    const path = request.url!.split('?', 1)[0]!;
    if (probes.has(path) && (request.method === 'GET' || request.method === 'HEAD')) {
      response
        .writeHead(200, { 'content-type': 'application/json', 'x-request-id': requestId })
        .end(request.method === 'HEAD' ? undefined : '{"ok":true}');
      return;
    }
    const match = path.startsWith('/v1/')
      ? this.parts.table.match(request.method!, path.slice(3))
      : { found: 'nothing' as const };
    if (match.found === 'nothing') throw unknownOperation();
    if (match.found === 'path') {
      throw new ApiError(405, 'method_not_allowed', `the path has no ${request.method}`, {
        headers: { allow: match.allow.join(', ') },
      });
    }
    const startedAt = performance.now();
    response.once('close', () => this.parts.onDone(match.operation.id, response, startedAt));
    const go = () => this.forward(request, response, fail);
    if (match.operation.isPublic) return go();
    const key = keyOf(request);
    if (!key) throw unauthorized();
    // Nearly every request is of a key in memory, where a promise would cost more than all that is left to do.
    const known = this.parts.limiter === null ? this.parts.keys.known(key) : null;
    if (known?.identity.kind === 'inference') {
      request.headers[identityHeader] = known.header;
      return go();
    }
    this.authenticate(key, request, response).then(go).catch(fail);
  }

  private forward(request: IncomingMessage, response: ServerResponse, fail: (error: unknown) => void): void {
    delete request.headers.authorization;
    delete request.headers['x-api-key'];
    this.parts.targets.get('inference-router').forward(request, response, (cause) => {
      fail(
        new ApiError(503, 'unavailable', 'the inference service does not answer; try again', {
          cause,
          headers: { 'retry-after': '2' },
        }),
      );
    });
  }

  private async authenticate(key: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.parts.isInferenceKey(key)) throw unauthorized();
    const resolved = await this.parts.keys.resolve(key);
    if (!resolved || resolved.identity.kind !== 'inference') throw unauthorized();
    await this.limit(resolved.identity, response);
    request.headers[identityHeader] = resolved.header;
  }

  private async limit(identity: InferenceIdentity, response: ServerResponse): Promise<void> {
    const state = await this.parts.limiter?.take(identity.key_id);
    if (!state || state.allowed) return;
    response.setHeader('ratelimit-limit', state.limit);
    throw new ApiError(
      429,
      'rate_limit_exceeded',
      `the key may send ${state.limit} requests per window; wait ${state.resetSeconds} s`,
      {
        headers: { 'retry-after': String(state.resetSeconds) },
      },
    );
  }
}

/** `x-api-key` or bearer; both present and different: nobody. */
function keyOf(request: IncomingMessage): string | null {
  const header = request.headers['x-api-key'];
  const bearer = request.headers.authorization === undefined ? undefined : bearerOf(request);
  if (header === undefined) return bearer ?? null;
  if (typeof header !== 'string' || count(request.rawHeaders, 'x-api-key') > 1 || header.length > 512)
    return null;
  return bearer === undefined || bearer === header ? header : null;
}
