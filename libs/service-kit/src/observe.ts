import { type CountRequest, type Metrics, openSpan, type OpenSpan } from '@nebo/telemetry';
import type { FastifyInstance, FastifyRequest } from 'fastify';

/** Paths that probes ask all day: neither counted nor traced. */
const probes = new Set(['/healthz', '/metrics']);

/**
 * Counts every answered request by method, operation and status. Each route has a hook of its own that holds its counter,
 * so nothing is looked up per request (its spec measures the cost). What the client breaks off is not answered; the gateway counts it.
 */
export function countRequests(fastify: FastifyInstance, metrics: Metrics): void {
  fastify.addHook('onRoute', (route) => {
    if (probes.has(route.url)) return;
    const { operation = route.url } = (route.config ?? {}) as { operation?: string };
    const counters = new Map<string, CountRequest>();
    for (const method of [route.method].flat()) counters.set(method, metrics.requests(method, operation));
    const only = counters.size === 1 ? [...counters.values()][0] : undefined;
    const count: NonNullable<typeof route.onResponse> = (request, reply, done) => {
      (only ?? counters.get(request.method))?.(reply.statusCode, reply.elapsedTime / 1_000);
      done();
    };
    route.onResponse = [...[route.onResponse ?? []].flat(), count] as typeof route.onResponse;
  });
}

/**
 * Opens a span for every request, under the caller's `traceparent`, which is the active one in the handler and in all that
 * it awaits. Installed only where an exporter is configured.
 */
export function traceRequests(fastify: FastifyInstance, service: string): void {
  const spans = new WeakMap<FastifyRequest, OpenSpan>();
  fastify.addHook('onRequest', (request, reply, done) => {
    const { url = 'unknown' } = request.routeOptions;
    if (probes.has(url)) return done();
    const parent = request.headers['traceparent'];
    const span = openSpan(
      `${request.method} ${url}`,
      { 'nebo.service': service, 'http.route': url, 'nebo.request_id': String(request.id) },
      { parent: typeof parent === 'string' ? parent : null, kind: 'server' },
    );
    spans.set(request, span);
    const end = () => {
      const { statusCode, writableFinished } = reply.raw;
      span.end({
        attributes: {
          'http.response.status_code': statusCode,
          ...(writableFinished ? {} : { 'nebo.broken_off': true }),
        },
        failed: statusCode >= 500,
      });
    };
    reply.raw.once('finish', end).once('close', end);
    return span.run(done);
  });
  // A body arrives in callbacks of its socket, where the context of the request is lost: it is taken up again here.
  fastify.addHook('preValidation', (request, _reply, done) => {
    const span = spans.get(request);
    return span ? span.run(done) : done();
  });
}
