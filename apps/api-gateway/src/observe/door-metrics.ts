import { Counter, Histogram, Registry } from 'prom-client';

interface OperationFigures {
  seconds: Histogram.Internal<'operation'>;
  byStatus: Map<number, Counter.Internal>;
}

/** What the doors count; a registry of their own, since several services share a process. */
export class DoorMetrics {
  private readonly registry = new Registry();
  private readonly requests = new Counter({
    name: 'nebo_gateway_requests_total',
    help: 'Requests by operation and status',
    labelNames: ['operation', 'status'],
    registers: [this.registry],
  });
  private readonly seconds = new Histogram({
    name: 'nebo_gateway_request_seconds',
    help: 'Time from the request’s head to the end of the answer',
    labelNames: ['operation'],
    buckets: [0.005, 0.02, 0.05, 0.15, 0.5, 2, 10, 60],
    registers: [this.registry],
  });

  /** prom-client hashes the labels at each lookup, which costs more than counting: found once, they are kept. */
  private readonly byOperation = new Map<string, OperationFigures>();

  observe(operation: string, status: number, seconds: number): void {
    let figures = this.byOperation.get(operation);
    if (!figures) {
      figures = { seconds: this.seconds.labels({ operation }), byStatus: new Map() };
      this.byOperation.set(operation, figures);
    }
    let count = figures.byStatus.get(status);
    if (!count) {
      count = this.requests.labels({ operation, status });
      figures.byStatus.set(status, count);
    }
    count.inc();
    figures.seconds.observe(seconds);
  }

  text(): Promise<string> {
    return this.registry.metrics();
  }
}
