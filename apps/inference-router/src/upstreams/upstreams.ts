import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Route } from '../catalogue/catalogue.js';
import type { Order } from '../completions/order.js';
import { vendorRequest } from '../dialects/vendor-request.js';
import { SimulatorUpstream } from '../simulator/simulator.js';
import { type Json, readEvents } from './event-stream.js';
import { HttpUpstream } from './http-upstream.js';
import { type UpstreamLimits, upstreamLimits, within } from './limits.js';
import { pickOrder } from './pick.js';
import { UpstreamError } from './upstream.js';

/** An answer that has begun: its first chunks are there. */
export interface OpenAnswer {
  route: Route;
  first: Json[];
  rest: AsyncGenerator<Json[]>;
}

/**
 * Finds an upstream that answers. Another one is tried only as long as no event has come: nothing that a client has seen
 * is ever repeated. Breakers that keep away from a failing upstream for a while come with the next issue.
 */
@Injectable()
export class Upstreams {
  private readonly limits: UpstreamLimits;

  constructor(
    private readonly http: HttpUpstream,
    private readonly simulator: SimulatorUpstream,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.limits = upstreamLimits(runtime.config);
  }

  /**
   * Opens the answer to an order.
   * @param check throws UpstreamError for a first chunk that is an error
   * @throws UpstreamError of the last upstream, or the abort's reason
   */
  async open(
    order: Order,
    signal: AbortSignal,
    check: (chunk: Json, route: Route) => void,
  ): Promise<OpenAnswer> {
    const routes = pickOrder(order.offer.routes);
    // A kept connection may have died in silence; with a single route that deserves one more try.
    if (routes.length === 1) routes.push(routes[0]!);
    let last: unknown;
    for (const [index, route] of routes.entries()) {
      const isRepeat = route === routes[index - 1];
      if (isRepeat && !(last instanceof UpstreamError && last.trouble === 'unreachable')) break;
      try {
        return await this.openOne(order, route, signal, check);
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof UpstreamError) || error.isAboutRequest) throw error;
        this.runtime.log.warn(
          { err: error, model: order.offer.model.id, upstream: route.provider.name, status: error.status },
          'upstream failed before its first event',
        );
        last = error;
      }
    }
    throw last;
  }

  private async openOne(
    order: Order,
    route: Route,
    signal: AbortSignal,
    check: (chunk: Json, route: Route) => void,
  ): Promise<OpenAnswer> {
    const attempt = new AbortController();
    const own = AbortSignal.any([signal, attempt.signal]);
    const upstream = route.provider.baseUrl === null ? this.simulator : this.http;
    const begin = async (): Promise<OpenAnswer> => {
      const answer = await upstream.open(route, vendorRequest(order, route), own);
      const rest = readEvents(answer, this.limits.idle);
      const first = await rest.next();
      if (first.done) throw new UpstreamError('broken', 'an answer without any event');
      for (const chunk of first.value) check(chunk, route);
      return { route, first: first.value, rest };
    };
    try {
      return await within(this.limits.firstByte, 'before the first event', begin(), () => attempt.abort());
    } catch (error) {
      // Whatever is still open there must not go on generating.
      attempt.abort();
      throw error;
    }
  }
}
