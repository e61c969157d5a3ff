import type { IncomingMessage, ServerResponse } from 'node:http';
import { identityHeader, type KeyIdentity, type OperationTable, type TableOperation } from '@nebo/contracts';
import { ApiError, type Targets, unauthorized, unknownOperation } from '@nebo/service-kit';
import type { AgentDoor } from '../agents/agent-door.js';
import type { KeyCache } from '../keys/key-cache.js';
import type { RateLimiter, RateState } from '../limits/rate-limiter.js';
import { checkAccess } from '../policy/access.js';
import type { OperatorDoor } from '../operator/operator-door.js';
import type { OwnerCache } from '../policy/owner-cache.js';
import { writeError } from './answers.js';
import { bearerOf } from './bearer.js';
import type { Cors } from './cors.js';
import type { HookDoor } from './hook-door.js';
import type { OpenStreams } from './open-streams.js';
import { stripInternalHeaders, takeRequestId } from './request-id.js';

/** What the control door works with. */
export interface ControlDoorParts {
  table: OperationTable;
  keys: KeyCache;
  owners: OwnerCache;
  /** Null: no limit. */
  limiter: RateLimiter | null;
  targets: Targets;
  agents: AgentDoor;
  /** Of git hosts, which have no key. */
  hooks: HookDoor;
  operator: OperatorDoor;
  cors: Cors;
  streams: OpenStreams;
  /** Whether a bearer has the form of a control key (prefix and checksum). */
  isControlKey(key: string): boolean;
  /** The gateway's own answers (`/healthz`, `openapi.json`, `/docs`); false when the path is none of them. */
  own(request: IncomingMessage, response: ServerResponse, path: string): boolean;
  onError(error: unknown, request: IncomingMessage): void;
  onDone(operation: string, response: ServerResponse, startedAt: number): void;
}

/**
 * The door of `{base_url}`. A request is forwarded without being parsed: operation, key, limit, ids and policy are decided
 * from its head (design.md, 2); the order of refusals is that of interfaces.md, 2.
 */
export class ControlDoor {
  constructor(private readonly parts: ControlDoorParts) {}

  handle = (request: IncomingMessage, response: ServerResponse): void => {
    const requestId = takeRequestId(request);
    stripInternalHeaders(request);
    const fail = (error: unknown) => {
      if (!(error instanceof ApiError) || error.status >= 500) this.parts.onError(error, request);
      writeError(request, response, error, requestId);
    };
    try {
      const pending = this.route(request, response, fail);
      if (pending) pending.catch(fail);
    } catch (error) {
      fail(error);
    }
  };

  private route(
    request: IncomingMessage,
    response: ServerResponse,
    fail: (error: unknown) => void,
  ): Promise<void> | undefined {
    const url = request.url!;
    const mark = url.indexOf('?');
    let path = mark < 0 ? url : url.slice(0, mark);
    if (this.parts.cors.apply(request, response, path) || this.parts.own(request, response, path))
      return undefined;
    const away = (cause: unknown) => fail(serviceAway(cause));
    if (path.startsWith('/agent/v1/')) return this.parts.agents.handle(request, response, path, away);
    if (this.parts.hooks.handle(request, response, path, away)) return undefined;
    if (path.startsWith('/operator/v1/')) {
      this.parts.operator.handle(request, response, path, away);
      return undefined;
    }
    if (path.includes('//') || (path.length > 4 && path.endsWith('/'))) {
      // Clients put a base address that ends in a slash in front of paths that begin with one.
      path = path.replace(/\/{2,}/g, '/').replace(/(.)\/$/, '$1');
      request.url = path + (mark < 0 ? '' : url.slice(mark));
    }
    if (!path.startsWith('/v1/')) throw unknownOperation();
    const match = this.parts.table.match(request.method!, path.slice(3));
    if (match.found === 'nothing') throw unknownOperation();
    if (match.found === 'path') {
      throw new ApiError(
        405,
        'method_not_allowed',
        `the path has no ${request.method}; it has ${match.allow.join(', ')}`,
        {
          headers: { allow: match.allow.join(', ') },
        },
      );
    }
    return this.admit(request, response, match.operation, match.ids, away);
  }

  private async admit(
    request: IncomingMessage,
    response: ServerResponse,
    operation: TableOperation,
    ids: string[],
    away: (cause: unknown) => void,
  ): Promise<void> {
    const startedAt = performance.now();
    response.once('close', () => this.parts.onDone(operation.id, response, startedAt));
    const bearer = bearerOf(request);
    if (!bearer || !this.parts.isControlKey(bearer)) throw unauthorized();
    const key = await this.parts.keys.resolve(bearer);
    if (!key || key.identity.kind !== 'key') throw unauthorized();
    await this.limit(key.identity, response);
    await checkAccess(key.identity, operation, ids, this.parts.owners);
    if (operation.isStream) this.parts.streams.watch(response, () => this.mayRead(bearer, operation, ids));
    request.headers[identityHeader] = key.header;
    delete request.headers.authorization;
    this.parts.targets.get(operation.service).forward(request, response, away);
  }

  /** Whether a stream that has begun may go on. @throws ApiError 503 when that cannot be told now */
  private async mayRead(bearer: string, operation: TableOperation, ids: string[]): Promise<boolean> {
    const key = await this.parts.keys.resolve(bearer);
    if (key?.identity.kind !== 'key') return false;
    try {
      await checkAccess(key.identity, operation, ids, this.parts.owners);
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.status < 500) return false;
      throw error;
    }
  }

  private async limit(identity: KeyIdentity, response: ServerResponse): Promise<void> {
    if (!this.parts.limiter) return;
    const taken = this.parts.limiter.take(identity.key_id);
    const state = taken instanceof Promise ? await taken : taken;
    setRateHeaders(response, state);
    if (state.allowed) return;
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

const serviceAway = (cause: unknown) =>
  new ApiError(503, 'unavailable', 'the service does not answer; try again', {
    cause,
    headers: { 'retry-after': '2' },
  });

function setRateHeaders(response: ServerResponse, state: RateState): void {
  response.setHeader('ratelimit-limit', state.limit);
  response.setHeader('ratelimit-remaining', state.remaining);
  response.setHeader('ratelimit-reset', state.resetSeconds);
}
