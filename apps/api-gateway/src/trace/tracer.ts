import type { IncomingMessage, ServerResponse } from 'node:http';
import { isConfigured, openSpan } from '@nebo/telemetry';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Spans of a door's requests. */
export interface Tracer {
  /** Wraps a door's handler; without an exporter it is the handler itself. */
  traced(door: string, handler: Handler): Handler;
  /** Tells which operation an answer is of; its span has that name. */
  done(operation: string, response: ServerResponse): void;
}

/** Paths that probes ask all day. */
const probes = new Set(['/healthz', '/metrics']);

/**
 * Where an exporter is configured, each request gets a span: below the client's `traceparent` when it sent one, else the
 * beginning of a trace; the services see it as their parent. Otherwise nothing is in the way of a request, and a client's
 * `traceparent` goes through as it came.
 */
export function tracer(env: Readonly<Record<string, string | undefined>>): Tracer {
  if (!isConfigured(env)) return { traced: (_door, handler) => handler, done: () => undefined };
  const operations = new WeakMap<ServerResponse, string>();
  return {
    traced: (door, handler) => (request, response) => {
      if (probes.has(request.url!)) return handler(request, response);
      const given = request.headers['traceparent'];
      const span = openSpan(
        `${door} ${request.method}`,
        { 'nebo.service': 'api-gateway', 'http.request.method': request.method ?? '' },
        { parent: typeof given === 'string' ? given : null, kind: 'server' },
      );
      request.headers['traceparent'] = span.traceparent;
      span.run(() => handler(request, response));
      // After the door's own listeners, which tell the operation.
      response.once('close', () => {
        const { statusCode, writableFinished } = response;
        const operation = operations.get(response);
        span.end({
          ...(operation === undefined ? {} : { name: `${door} ${operation}` }),
          attributes: {
            'http.response.status_code': statusCode,
            'nebo.request_id': String(request.headers['x-request-id']),
            ...(writableFinished ? {} : { 'nebo.broken_off': true }),
          },
          failed: statusCode >= 500,
        });
      });
    },
    done: (operation, response) => void operations.set(response, operation),
  };
}
