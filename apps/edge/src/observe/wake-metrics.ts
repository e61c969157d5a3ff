import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Figures of apps that sleep. */
export interface WakeMetrics {
  /** A start that was asked for is done; seconds from the first request that waited. */
  woken(seconds: number): void;
  notWoken(reason: string): void;
  /** A request got no replica. */
  refused(reason: string): void;
  waiting(requests: number): void;
  /** A replica went to sleep because nobody used it. */
  idled(): void;
}

/** In a registry of the caller; a second edge on the same registry adds to the same metrics. */
export function createWakeMetrics(registry: Registry): WakeMetrics {
  const registers = [registry];
  const counter = (name: string, help: string, labelNames: string[] = []): Counter =>
    (registry.getSingleMetric(name) as Counter | undefined) ??
    new Counter({ name, help, labelNames, registers });
  const seconds =
    (registry.getSingleMetric('nebo_edge_cold_start_seconds') as Histogram | undefined) ??
    new Histogram({
      name: 'nebo_edge_cold_start_seconds',
      help: 'From the first request that was held for a sleeping app until its replica was ready',
      buckets: [0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 120],
      registers,
    });
  const failures = counter('nebo_edge_cold_start_failures_total', 'Starts that were asked for and failed', [
    'reason',
  ]);
  const refusals = counter('nebo_edge_held_refused_total', 'Held requests that got no replica', ['reason']);
  const idles = counter('nebo_edge_idle_stops_total', 'Replicas put to sleep because nobody used them');
  const held =
    (registry.getSingleMetric('nebo_edge_held_requests') as Gauge | undefined) ??
    new Gauge({ name: 'nebo_edge_held_requests', help: 'Requests that wait for a replica', registers });
  return {
    woken: (took) => seconds.observe(took),
    notWoken: (reason) => failures.inc({ reason }),
    refused: (reason) => refusals.inc({ reason }),
    waiting: (requests) => held.set(requests),
    idled: () => idles.inc(),
  };
}
