import type { Registry } from 'prom-client';

/** Counts one answered request of one operation: status and seconds from its head to the end of the answer. */
export type CountRequest = (status: number, seconds: number) => void;

/** Upper bounds of the histogram, seconds. */
export const requestBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

interface Row {
  service: string;
  method: string;
  operation: string;
  statuses: Map<number, number>;
  /** Requests by bucket, the last one those beyond the largest bound; not yet added up. */
  buckets: number[];
  seconds: number;
}

interface Sample {
  metricName?: string;
  labels: Record<string, string | number>;
  value: number;
}

const totalName = 'nebo_http_requests_total';
const secondsName = 'nebo_http_request_seconds';

/**
 * Requests by operation. prom-client hashes the labels of every observation, which costs more than all else that is done
 * for a small request; here a route holds its own row and counting is two additions. prom-client prints it.
 */
export class RequestFigures {
  private readonly rows = new Map<string, Row>();

  /** That of a registry; made and registered at the first call. */
  static of(registry: Registry): RequestFigures {
    const known = registry.getSingleMetric(totalName) as unknown as { figures: RequestFigures } | undefined;
    if (known) return known.figures;
    const figures = new RequestFigures();
    const register = (name: string, help: string, type: string, samples: () => Sample[]) => {
      const get = async () => ({ name, help, type, values: samples(), aggregator: 'sum' });
      registry.registerMetric({ name, figures, get, reset: () => figures.rows.clear() } as never);
    };
    register(totalName, 'Answered requests', 'counter', () => figures.totals());
    register(secondsName, 'From the head of a request to the end of its answer', 'histogram', () =>
      figures.durations(),
    );
    return figures;
  }

  /** The counter of an operation, to be kept by whoever serves it. */
  counter(service: string, method: string, operation: string): CountRequest {
    const row = this.row(service, method, operation);
    return (status, seconds) => {
      row.statuses.set(status, (row.statuses.get(status) ?? 0) + 1);
      let bucket = 0;
      while (bucket < requestBuckets.length && seconds > requestBuckets[bucket]!) bucket += 1;
      row.buckets[bucket]! += 1;
      row.seconds += seconds;
    };
  }

  private row(service: string, method: string, operation: string): Row {
    const key = `${service} ${method} ${operation}`;
    let row = this.rows.get(key);
    if (!row) {
      const buckets = Array.from({ length: requestBuckets.length + 1 }, () => 0);
      row = { service, method, operation, statuses: new Map(), buckets, seconds: 0 };
      this.rows.set(key, row);
    }
    return row;
  }

  private totals(): Sample[] {
    return [...this.rows.values()].flatMap(({ service, method, operation, statuses }) =>
      [...statuses].map(([status, value]) => ({ labels: { service, method, operation, status }, value })),
    );
  }

  private durations(): Sample[] {
    const samples: Sample[] = [];
    for (const { service, method, operation, buckets, seconds } of this.rows.values()) {
      const labels = { service, method, operation };
      let count = 0;
      for (const [index, value] of buckets.entries()) {
        count += value;
        const le = requestBuckets[index] ?? '+Inf';
        samples.push({ metricName: `${secondsName}_bucket`, labels: { le, ...labels }, value: count });
      }
      // A route that nobody has asked shows nothing.
      if (count === 0) samples.splice(-buckets.length);
      else
        samples.push(
          { metricName: `${secondsName}_sum`, labels, value: seconds },
          { metricName: `${secondsName}_count`, labels, value: count },
        );
    }
    return samples;
  }
}
