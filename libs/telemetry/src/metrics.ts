import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { type CountRequest, requestBuckets, RequestFigures } from './request-figures.js';

export { Counter, Gauge, Histogram, Registry } from 'prom-client';

/** States of a circuit breaker, as the number that `nebo_breaker_state` shows. */
export const breakerStates = { closed: 0, half_open: 1, open: 2 } as const;

/** What every service counts. Labels are bounded sets: operation ids, route patterns and kinds, never paths, ids or host names. */
export interface Metrics {
  readonly registry: Registry;
  /** One answered request. `operation` is an operation id or a route's pattern; seconds from head to end of the answer. */
  http(request: { method: string; operation: string; status: number; seconds: number }): void;
  /** The same for one operation, to be kept by its route: a few nanoseconds a request. */
  requests(method: string, operation: string): CountRequest;
  /** Rows waiting in the outbox and the age of the oldest in milliseconds. */
  outbox(pending: number, oldestMs: number): void;
  /** A lifecycle state that outlived its deadline. */
  missedDeadline(kind: string, state: string): void;
  /** How many lifecycles of a kind are in a state, and how many of them fail again and again. */
  lifecycles(kind: string, state: string, count: number, failing: number): void;
  /** State of a circuit breaker; counts the transitions to open. */
  breaker(name: string, state: keyof typeof breakerStates): void;
  /** An error that was answered with 5xx or swallowed by a background loop. */
  failure(where: string): void;
  /** A metric of the service's own, with the label `service` filled in; asked for twice, it is the same one. */
  counter<L extends string>(
    name: string,
    help: string,
    labels?: readonly L[],
  ): (labels?: Record<L, string | number>, by?: number) => void;
  gauge<L extends string>(
    name: string,
    help: string,
    labels?: readonly L[],
  ): (value: number, labels?: Record<L, string | number>) => void;
  histogram<L extends string>(
    name: string,
    help: string,
    labels?: readonly L[],
    buckets?: readonly number[],
  ): (value: number, labels?: Record<L, string | number>) => void;
  /** The text of `/metrics` and its content type. */
  text(): Promise<string>;
  readonly contentType: string;
}

/**
 * The metrics of one service. There is no default registry in this module: services of one process share the one that is
 * passed in and are told apart by the label `service`.
 */
export function createMetrics(service: string, registry: Registry = new Registry()): Metrics {
  const registers = [registry];
  const known = <M>(name: string) => registry.getSingleMetric(name) as M | undefined;
  const names = (labels: readonly string[]) => ['service', ...labels];

  const counter: Metrics['counter'] = (name, help, labels = []) => {
    const metric = known<Counter>(name) ?? new Counter({ name, help, labelNames: names(labels), registers });
    return (values, by = 1) => metric.inc({ service, ...values }, by);
  };
  const gauge: Metrics['gauge'] = (name, help, labels = []) => {
    const metric = known<Gauge>(name) ?? new Gauge({ name, help, labelNames: names(labels), registers });
    return (value, values) => metric.set({ service, ...values }, value);
  };
  const histogram: Metrics['histogram'] = (name, help, labels = [], buckets = requestBuckets) => {
    const metric =
      known<Histogram>(name) ??
      new Histogram({ name, help, labelNames: names(labels), buckets: [...buckets], registers });
    // prom-client hashes the labels at each lookup, which costs more than counting: found once, they are kept.
    const found = new Map<string, Histogram.Internal<string>>();
    return (value, values) => {
      let key = '';
      for (const label of labels) key += `${values?.[label] ?? ''}\n`;
      let one = found.get(key);
      if (!one) found.set(key, (one = metric.labels({ service, ...values })));
      one.observe(value);
    };
  };

  const requests = RequestFigures.of(registry);
  const pending = gauge('nebo_outbox_pending', 'Rows of the outbox that are not sent yet');
  const lag = gauge('nebo_outbox_lag_seconds', 'Age of the oldest row of the outbox that is not sent yet');
  const missed = counter('nebo_lifecycle_missed_deadlines_total', 'States that outlived their deadline', [
    'kind',
    'state',
  ]);
  const states = gauge('nebo_lifecycles', 'Lifecycles that are not at an end', ['kind', 'state']);
  const failing = gauge('nebo_lifecycles_failing', 'Lifecycles whose step fails again and again', [
    'kind',
    'state',
  ]);
  const breakers = gauge('nebo_breaker_state', 'Circuit breakers: 0 closed, 1 half open, 2 open', ['name']);
  const opened = counter('nebo_breaker_opened_total', 'Circuit breakers that opened', ['name']);
  const failures = counter('nebo_failures_total', 'Unexpected errors', ['where']);
  const breakerNow = new Map<string, string>();

  return {
    registry,
    counter,
    gauge,
    histogram,
    http: ({ method, operation, status, seconds }) =>
      requests.counter(service, method, operation)(status, seconds),
    requests: (method, operation) => requests.counter(service, method, operation),
    outbox(count, oldestMs) {
      pending(count);
      lag(oldestMs / 1000);
    },
    missedDeadline: (kind, state) => missed({ kind, state }),
    lifecycles(kind, state, count, fail) {
      states(count, { kind, state });
      failing(fail, { kind, state });
    },
    breaker(name, state) {
      if (state === 'open' && breakerNow.get(name) !== 'open') opened({ name });
      breakerNow.set(name, state);
      breakers(breakerStates[state], { name });
    },
    failure: (where) => failures({ where }),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

/** Adds CPU, memory, event loop and garbage collection of this process to a registry, once. */
export function collectProcessMetrics(registry: Registry): void {
  if (registry.getSingleMetric('process_cpu_user_seconds_total') === undefined)
    collectDefaultMetrics({ register: registry });
}
