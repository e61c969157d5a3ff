import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Route } from '../catalogue/catalogue.js';
import { checkChunk } from '../completions/answer-reader.js';
import type { Order } from '../completions/order.js';
import { vendorRequest } from '../dialects/vendor-request.js';
import { Images } from '../images/images.js';
import { SimulatorUpstream } from '../simulator/simulator.js';
import type { Pass } from './breaker.js';
import { Breakers } from './breakers.js';
import { readEvents, type UpstreamEvent } from './event-stream.js';
import { HttpUpstream } from './http-upstream.js';
import { limitsOf, type UpstreamLimits, upstreamLimits, within } from './limits.js';
import { pickOrder } from './pick.js';
import { UpstreamError } from './upstream.js';

/** Most attempts of one request, whatever the number of its upstreams. */
const mostAttempts = 3;

/** An answer that has begun: its first events are there. */
export interface OpenAnswer {
  route: Route;
  first: readonly UpstreamEvent[];
  rest: AsyncGenerator<UpstreamEvent[]>;
}

/**
 * Finds an upstream that answers. Another one is tried only as long as no event has come: nothing that a client has seen
 * is ever repeated. Routes whose breaker is open are passed over.
 */
@Injectable()
export class Upstreams {
  private readonly limits: UpstreamLimits;

  constructor(
    private readonly http: HttpUpstream,
    private readonly simulator: SimulatorUpstream,
    private readonly breakers: Breakers,
    private readonly images: Images,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.limits = upstreamLimits(runtime.config);
  }

  /**
   * Opens the answer to an order.
   * @throws UpstreamError of the last upstream, `closed` when none may be tried; ApiError 400 about a picture; or the
   * abort's reason
   */
  async open(order: Order, signal: AbortSignal): Promise<OpenAnswer> {
    const { routes } = order.offer;
    const attempts = pickOrder(routes);
    // A kept connection may have died in silence; with a single route that deserves one more try.
    if (attempts.length === 1) attempts.push(attempts[0]!);
    let last: unknown;
    let made = 0;
    for (const route of attempts) {
      const isRepeat = routes.length === 1 && made > 0;
      if (made === mostAttempts || (isRepeat && !isUnreachable(last))) break;
      const pass = this.breakers.of(route).enter();
      if (!pass) continue;
      made += 1;
      try {
        return await this.attempt(order, route, pass, signal);
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
    if (last !== undefined) throw last;
    throw new UpstreamError('closed', `no upstream of ${order.offer.model.id} may be tried now`, {
      retryAfter: this.breakers.secondsUntilOne(routes),
    });
  }

  /** One attempt; the breaker learns how it ended. */
  private async attempt(order: Order, route: Route, pass: Pass, signal: AbortSignal): Promise<OpenAnswer> {
    const attempt = new AbortController();
    const forward = () => attempt.abort(signal.reason);
    signal.addEventListener('abort', forward, { once: true });
    const abort = (reason: Error) => attempt.abort(reason);
    const { firstByte, idle } = limitsOf(route.provider, this.limits);
    let rest: AsyncGenerator<UpstreamEvent[]> | undefined;
    try {
      signal.throwIfAborted();
      const sent = await this.images.forRoute(order, route, attempt.signal);
      const begin = async (): Promise<OpenAnswer> => {
        const upstream = route.provider.baseUrl === null ? this.simulator : this.http;
        const answer = await upstream.open(route, vendorRequest(sent, route), attempt.signal);
        rest = readEvents(answer, idle, abort);
        const first = await rest.next();
        if (first.done) throw new UpstreamError('broken', 'an answer without any event');
        for (const event of first.value) checkChunk(event.json(), route);
        this.breakers.note(route, pass, null);
        return { route, first: first.value, rest: this.watched(rest, route, signal, forward) };
      };
      return await within(firstByte, 'before the first event', begin(), () => attempt.abort());
    } catch (error) {
      this.breakers.note(route, pass, signal.aborted ? undefined : error);
      signal.removeEventListener('abort', forward);
      // Whatever is still open there must not go on generating.
      attempt.abort();
      void rest?.return(undefined).catch(() => undefined);
      throw error;
    }
  }

  /** The rest of an answer; the breaker learns when it is broken off, or makes no sense to its reader. */
  private async *watched(
    rest: AsyncGenerator<UpstreamEvent[]>,
    route: Route,
    signal: AbortSignal,
    forward: () => void,
  ): AsyncGenerator<UpstreamEvent[]> {
    let isWhole = false;
    try {
      yield* rest;
      isWhole = true;
    } finally {
      // Nobody stops reading without a reason: the vendor's error, or a client that left, which aborts first.
      if (!isWhole && !signal.aborted) this.breakers.of(route).broke();
      signal.removeEventListener('abort', forward);
    }
  }
}

const isUnreachable = (error: unknown): boolean =>
  error instanceof UpstreamError && error.trouble === 'unreachable';
