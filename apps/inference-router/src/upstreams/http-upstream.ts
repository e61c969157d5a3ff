import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Pool } from 'undici';
import type { Provider, Route } from '../catalogue/catalogue.js';
import { Exchange } from './exchange.js';
import { limitsOf, type UpstreamLimits, upstreamLimits } from './limits.js';
import { Deadlines } from './deadlines.js';
import type { AnswerTaker, Sending, Upstream } from './upstream.js';

/** A vendor's connections and what does not change between its requests. */
interface Line {
  pool: Pool;
  path: string;
  headers: Record<string, string>;
}

/** Vendors over HTTP. Addresses are the operator's, so private ones are as good as others. */
@Injectable()
export class HttpUpstream implements Upstream, OnApplicationShutdown {
  private readonly lines = new Map<Provider, Line>();
  private readonly defaults: UpstreamLimits;

  constructor(
    private readonly deadlines: Deadlines,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'config'>,
  ) {
    this.defaults = upstreamLimits(runtime.config);
  }

  send(route: Route, body: Record<string, unknown>, taker: AnswerTaker): Sending {
    const { provider } = route;
    const { pool, path, headers } = this.lineOf(provider);
    const exchange = new Exchange(provider, taker, this.deadlines);
    pool.dispatch({ path, method: 'POST', headers, body: JSON.stringify(body) }, exchange);
    return exchange;
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all([...this.lines.values()].map(({ pool }) => pool.destroy()));
  }

  private lineOf(provider: Provider): Line {
    let line = this.lines.get(provider);
    if (line) return line;
    const url = new URL(`${provider.baseUrl}/chat/completions`);
    line = {
      pool: new Pool(url.origin, {
        connect: { timeout: limitsOf(provider, this.defaults).connect },
        // undici's own limits of 300 s would end long answers (inference-wire.md, 1.7).
        headersTimeout: 0,
        bodyTimeout: 0,
        keepAliveTimeout: 30_000,
        // One connection an answer: a connection that breaks takes one answer along, not all of them.
        allowH2: false,
      }),
      path: url.pathname + url.search,
      headers: {
        'content-type': 'application/json',
        accept: 'text/event-stream',
        'accept-encoding': 'identity',
        ...(provider.apiKey === null ? {} : { authorization: `Bearer ${provider.apiKey}` }),
      },
    };
    this.lines.set(provider, line);
    return line;
  }
}
