import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { Http1Pool, Http1Reactor } from '@nebo/http1';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Provider, Route } from '../catalogue/catalogue.js';
import { Deadlines } from './deadlines.js';
import { Exchange } from './exchange.js';
import { limitsOf, type UpstreamLimits, upstreamLimits } from './limits.js';
import type { AnswerTaker, Sending, Upstream } from './upstream.js';
import { connectVendor, type VendorHost, vendorHost } from './vendor-host.js';

/** How long an idle connection is kept, milliseconds; less where the vendor keeps it for less. */
const idleMs = 30_000;

/** A vendor's connections and what does not change between its requests. */
interface Line {
  pool: Http1Pool<VendorHost>;
  host: VendorHost;
  path: string;
  /** Name, value, name, … */
  headers: readonly string[];
}

/** Vendors over HTTP. Addresses are the operator's, so private ones are as good as others. */
@Injectable()
export class HttpUpstream implements Upstream, OnApplicationShutdown {
  private readonly lines = new Map<Provider, Line>();
  private readonly defaults: UpstreamLimits;
  private readonly reactor = new Http1Reactor();

  constructor(
    private readonly deadlines: Deadlines,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'config'>,
  ) {
    this.defaults = upstreamLimits(runtime.config);
  }

  send(route: Route, body: Record<string, unknown>, taker: AnswerTaker): Sending {
    const { provider } = route;
    const { pool, host, path, headers } = this.lineOf(provider);
    const exchange = new Exchange(provider, taker, this.deadlines);
    exchange.begin(pool, host, { method: 'POST', path, headers, body: JSON.stringify(body) });
    return exchange;
  }

  async onApplicationShutdown(): Promise<void> {
    for (const { pool } of this.lines.values()) pool.destroy();
    this.reactor.stop();
  }

  private lineOf(provider: Provider): Line {
    let line = this.lines.get(provider);
    if (line) return line;
    const url = new URL(`${provider.baseUrl}/chat/completions`);
    const { connect } = limitsOf(provider, this.defaults);
    line = {
      // One connection an answer: a connection that breaks takes one answer along, not all of them.
      pool: new Http1Pool({
        reactor: this.reactor,
        connect: connectVendor,
        connectMs: connect === 0 ? Infinity : connect,
        // A limit of its own would end long answers (inference-wire.md, 1.7); those of the operator are `Deadlines`.
        answerMs: Infinity,
        idleMs,
      }),
      host: vendorHost(url),
      path: url.pathname + url.search,
      headers: headersOf(url, provider),
    };
    this.lines.set(provider, line);
    return line;
  }
}

const headersOf = (url: URL, { apiKey }: Provider): string[] => [
  'Host',
  url.host,
  'Content-Type',
  'application/json',
  'Accept',
  'text/event-stream',
  'Accept-Encoding',
  'identity',
  ...(apiKey === null ? [] : ['Authorization', `Bearer ${apiKey}`]),
];
