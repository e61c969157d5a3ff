import type { IncomingMessage, ServerResponse } from 'node:http';

/** Cross-origin rules of the API: none unless `NEBO_CORS_ORIGINS` names origins; then exactly those, never with credentials. */
export class Cors {
  private readonly origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.origins = new Set(origins);
  }

  /** Sets headers for a configured origin. @returns true when it was a preflight and has been answered */
  apply(request: IncomingMessage, response: ServerResponse, path: string): boolean {
    const { origin } = request.headers;
    if (this.origins.size === 0 || origin === undefined || !path.startsWith('/v1/')) return false;
    response.setHeader('vary', 'Origin');
    if (!this.origins.has(origin)) return false;
    response.setHeader('access-control-allow-origin', origin);
    if (request.method !== 'OPTIONS' || !request.headers['access-control-request-method']) return false;
    response
      .writeHead(204, {
        'access-control-allow-methods': 'GET, POST, PUT, PATCH, DELETE',
        'access-control-allow-headers':
          'authorization, content-type, idempotency-key, x-request-id, last-event-id',
        'access-control-max-age': '600',
      })
      .end();
    return true;
  }
}
