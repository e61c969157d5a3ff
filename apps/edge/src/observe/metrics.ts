import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Who made the answer: files, replicas, a route without target, or the edge itself. */
export type AnswerKind = 'static' | 'replicas' | 'none' | 'edge';

export type Protocol = 'h1' | 'h2';

export interface EdgeMetrics {
  answered(kind: AnswerKind, status: number, protocol: Protocol, seconds: number): void;
  http2Sessions(open: number): void;
  upstreamFailed(reason: string): void;
  retried(): void;
  handshakeFailed(): void;
  parserRefused(status: number): void;
  routes(hosts: number, pending: number): void;
  fetched(ok: boolean): void;
  webSockets(open: number): void;
}

/**
 * The edge's metrics in a registry of the caller. Labels never hold host names: their number is not bounded. A second
 * edge on the same registry adds to the same metrics.
 */
export function createMetrics(registry: Registry): EdgeMetrics {
  const registers = [registry];
  const counter = (name: string, help: string, labelNames: string[] = []): Counter =>
    (registry.getSingleMetric(name) as Counter | undefined) ??
    new Counter({ name, help, labelNames, registers });
  const gauge = (name: string, help: string): Gauge =>
    (registry.getSingleMetric(name) as Gauge | undefined) ?? new Gauge({ name, help, registers });

  const countAnswer = answerCounter(registry);
  const seconds =
    (registry.getSingleMetric('nebo_edge_request_seconds') as Histogram | undefined) ??
    new Histogram({
      name: 'nebo_edge_request_seconds',
      help: 'From the head of the request to the end of the answer',
      labelNames: ['kind'],
      buckets: [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
      registers,
    });
  const upstream = counter('nebo_edge_upstream_failures_total', 'Attempts at a replica that failed', [
    'reason',
  ]);
  const retries = counter('nebo_edge_upstream_retries_total', 'Requests given to a second replica');
  const handshakes = counter('nebo_edge_tls_failures_total', 'TLS handshakes that failed');
  const parser = counter('nebo_edge_parser_refusals_total', 'Requests refused by the HTTP parser', [
    'status',
  ]);
  const hosts = gauge('nebo_edge_routes', 'Host names served');
  const waiting = gauge('nebo_edge_routes_pending', 'Host names that wait for their artifact');
  const fetches = counter('nebo_edge_route_fetches_total', 'Fetches of routes', ['result']);
  const sessions = gauge('nebo_edge_http2_sessions', 'Open connections of HTTP/2');
  const sockets = gauge('nebo_edge_websockets', 'Open WebSocket connections');
  return {
    answered(kind, status, protocol, took) {
      countAnswer(kind, status, protocol);
      seconds.observe({ kind }, took);
    },
    upstreamFailed: (reason) => upstream.inc({ reason }),
    retried: () => retries.inc(),
    handshakeFailed: () => handshakes.inc(),
    parserRefused: (status) => parser.inc({ status }),
    routes(known, pending) {
      hosts.set(known);
      waiting.set(pending);
    },
    fetched: (ok) => fetches.inc({ result: ok ? 'ok' : 'failed' }),
    http2Sessions: (open) => sessions.set(open),
    webSockets: (open) => sockets.set(open),
  };
}

type CountAnswer = (kind: AnswerKind, status: number, protocol: Protocol) => void;

/**
 * Answers are counted in numbers and handed over when somebody reads them: this is done for every request, and finding a
 * counter by its labels costs a microsecond.
 */
function answerCounter(registry: Registry): CountAnswer {
  const name = 'nebo_edge_requests_total';
  const known = registry.getSingleMetric(name) as Counter | undefined;
  // Of another edge on the same registry, which hands over its own.
  if (known) return (kind, status, protocol) => known.inc({ kind, status, protocol });
  const counts = new Map<AnswerKind, Record<Protocol, Map<number, number>>>();
  new Counter({
    name,
    help: 'Answers by who made them, status and protocol',
    labelNames: ['kind', 'status', 'protocol'],
    registers: [registry],
    collect() {
      for (const [kind, of] of counts)
        for (const protocol of ['h1', 'h2'] as const) {
          for (const [status, count] of of[protocol]) this.inc({ kind, status, protocol }, count);
          of[protocol].clear();
        }
    },
  });
  return (kind, status, protocol) => {
    let of = counts.get(kind);
    if (!of) counts.set(kind, (of = { h1: new Map(), h2: new Map() }));
    of[protocol].set(status, (of[protocol].get(status) ?? 0) + 1);
  };
}
