import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type {
  AgentIdentity,
  Identity,
  InferenceIdentity,
  KeyIdentity,
  ServiceIdentity,
} from '@nebo/contracts';
import type { FastifyRequest } from 'fastify';
import { unauthorized } from './errors.js';
import { type IdempotentRequest, idempotentRequest } from './idempotency.js';
import type { MasterKey } from './secrets.js';

declare module 'fastify' {
  interface FastifyRequest {
    identity: Identity | null;
  }
  interface FastifyInstance {
    masterKey: MasterKey;
  }
}

const requestOf = (context: ExecutionContext) => context.switchToHttp().getRequest<FastifyRequest>();

function callerOf<K extends Identity['kind']>(
  context: ExecutionContext,
  kind: K,
): Extract<Identity, { kind: K }> {
  const { identity } = requestOf(context);
  if (identity?.kind !== kind) throw unauthorized();
  return identity as Extract<Identity, { kind: K }>;
}

/** The key that calls a contract operation. */
export const Caller = createParamDecorator((_: unknown, context: ExecutionContext): KeyIdentity =>
  callerOf(context, 'key'),
);

/** The inference key that calls. */
export const InferenceCaller = createParamDecorator(
  (_: unknown, context: ExecutionContext): InferenceIdentity => callerOf(context, 'inference'),
);

/** The service that calls an internal operation. */
export const CallingService = createParamDecorator((_: unknown, context: ExecutionContext): ServiceIdentity =>
  callerOf(context, 'service'),
);

/** The region agent that calls. */
export const CallingAgent = createParamDecorator((_: unknown, context: ExecutionContext): AgentIdentity =>
  callerOf(context, 'agent'),
);

/**
 * The request as `once` needs it: null without the header. Its content is the JSON body; an upload makes its own.
 */
export const Idempotent = createParamDecorator(
  (_: unknown, context: ExecutionContext): IdempotentRequest | null => {
    const request = requestOf(context);
    const { identity } = request;
    const header = request.headers['idempotency-key'];
    if (identity?.kind !== 'key' || header === undefined) return null;
    const content = canonical(request.body);
    return idempotentRequest(
      identity,
      request.method,
      request.url,
      header,
      content,
      request.server.masterKey,
    );
  },
);

/** JSON with sorted keys, so that the same content in another order counts as the same request. */
export function canonical(value: unknown): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value ?? null);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(',')}}`;
}
