import { Counter, Histogram, Registry } from 'prom-client';

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

  observe(operation: string, status: number, seconds: number): void {
    this.requests.inc({ operation, status });
    this.seconds.observe({ operation }, seconds);
  }

  text(): Promise<string> {
    return this.registry.metrics();
  }
}
