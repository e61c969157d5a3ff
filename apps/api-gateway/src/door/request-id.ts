import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { internalHeaderPrefix } from '@nebo/contracts';

/** The client's request id when it has the form of one, otherwise a new one; put on the request for the services. */
export function takeRequestId(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  const id = typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID();
  request.headers['x-request-id'] = id;
  return id;
}

/** Takes away what only the inside may say. The agent's epoch is its own header and stays. */
export function stripInternalHeaders(request: IncomingMessage): void {
  for (const name in request.headers) {
    if (name.startsWith(internalHeaderPrefix) && name !== 'x-nebo-agent-epoch') delete request.headers[name];
  }
}
