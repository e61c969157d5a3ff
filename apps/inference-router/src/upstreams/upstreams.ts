import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Route } from '../catalogue/catalogue.js';
import { checkChunk } from '../completions/answer-reader.js';
import type { Order } from '../completions/order.js';
import { vendorRequest } from '../dialects/vendor-request.js';
import { hasPicture, Images } from '../images/images.js';
import { SimulatorUpstream } from '../simulator/simulator.js';
import type { Pass } from './breaker.js';
import { Breakers } from './breakers.js';
import type { Cancel } from '../completions/cancel.js';
import { Deadline, Deadlines } from './deadlines.js';
import { HttpUpstream } from './http-upstream.js';
import { limitsOf, type UpstreamLimits, upstreamLimits } from './limits.js';
import { pickOrder } from './pick.js';
import type { AnswerTaker, Sending, Upstream } from './upstream.js';
import { UpstreamError } from './upstream-error.js';
import type { UpstreamEvent } from './upstream-event.js';

/** Most attempts of one request, whatever the number of its upstreams. */
const mostAttempts = 3;

/** Who reads the answer to an order. */
export interface AnswerListener {
  /** An upstream answers; its first events follow. Called once. */
  began(route: Route): void;
  /** As `AnswerTaker.events`. */
  events(events: readonly UpstreamEvent[]): Promise<void> | void;
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
    private readonly deadlines: Deadlines,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.limits = upstreamLimits(runtime.config);
  }

  /**
   * Lets an order be answered; done when the answer is complete.
   * @throws UpstreamError of the last upstream, `closed` when none may be tried; ApiError 400 about a picture; the reason
   * of `cancel`; or what the listener threw
   */
  async answer(order: Order, cancel: Cancel, listener: AnswerListener): Promise<void> {
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
      const attempt = new Attempt(route, pass, listener, this.breakers);
      try {
        return await this.make(attempt, order, cancel);
      } catch (error) {
        cancel.throwIfCancelled();
        if (attempt.hasBegun || !(error instanceof UpstreamError) || error.isAboutRequest) throw error;
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

  private async make(attempt: Attempt, order: Order, cancel: Cancel): Promise<void> {
    const { route } = attempt;
    const limits = limitsOf(route.provider, this.limits);
    const deadline = new Deadline(limits.firstByte, (late) => attempt.late(late));
    attempt.deadline = deadline;
    attempt.idle = limits.idle;
    this.deadlines.watch(deadline);
    const off = cancel.onCancel((reason) => attempt.cancel(reason));
    try {
      cancel.throwIfCancelled();
      const sent = hasPicture(order.messages)
        ? await this.images.forRoute(order, route, cancel.signal)
        : order;
      const upstream = route.provider.baseUrl === null ? this.simulator : this.http;
      await attempt.send(upstream, vendorRequest(sent, route));
    } catch (error) {
      attempt.note(cancel.reason ? undefined : error);
      throw error;
    } finally {
      off();
      this.deadlines.forget(deadline);
    }
  }
}

/** One attempt at one route; the breaker learns how it went. */
class Attempt implements AnswerTaker {
  hasBegun = false;
  idle = 0;
  deadline!: Deadline;
  private sending: Sending | undefined;
  private reason: Error | undefined;
  private isNoted = false;
  private resolve!: () => void;
  private reject!: (error: Error) => void;

  constructor(
    readonly route: Route,
    private readonly pass: Pass,
    private readonly listener: AnswerListener,
    private readonly breakers: Breakers,
  ) {}

  send(upstream: Upstream, body: Record<string, unknown>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
      if (this.reason) return reject(this.reason);
      this.sending = upstream.send(this.route, body, this);
    });
  }

  cancel(reason: Error): void {
    this.reason ??= reason;
    this.sending?.cancel(reason);
  }

  late(limit: number): void {
    const where = this.hasBegun ? 'between two events' : 'before the first event';
    this.cancel(new UpstreamError('timeout', `${where}: nothing in ${limit / 1_000} s`));
  }

  events(events: readonly UpstreamEvent[]): Promise<void> | void {
    const { deadline } = this;
    if (!this.hasBegun) {
      // What is text and nothing else is no error.
      for (const event of events) if (!event.plain()) checkChunk(event.json(), this.route);
      deadline.limit = this.idle;
      deadline.touch();
      // An error in words that nobody knows is no beginning either: another route may still answer.
      if (!events.some(isOfAnswer)) return;
      this.hasBegun = true;
      this.note(null);
      this.listener.began(this.route);
    }
    deadline.touch();
    const wait = this.listener.events(events);
    if (!wait) return;
    // A slow client is not the upstream's fault.
    deadline.pause();
    return wait.finally(() => deadline.resume());
  }

  ended(): void {
    if (this.hasBegun) this.resolve();
    else this.reject(new UpstreamError('broken', 'an answer without any event'));
  }

  failed(error: Error): void {
    this.reject(error);
  }

  /** @param error null: it answers; undefined: nothing can be told of the route */
  note(error: unknown): void {
    // An answer that ends because of what one client asked for says nothing of the route.
    const isBroken = error instanceof UpstreamError && !error.isAboutRequest;
    if (this.hasBegun && isBroken && this.isNoted) this.breakers.of(this.route).broke();
    if (this.isNoted) return;
    this.isNoted = true;
    this.breakers.note(this.route, this.pass, error);
  }
}

const isOfAnswer = (event: UpstreamEvent): boolean => {
  if (event.plain()) return true;
  const { choices, usage } = event.json();
  return (Array.isArray(choices) && choices.length > 0) || (usage !== undefined && usage !== null);
};

const isUnreachable = (error: unknown): boolean =>
  error instanceof UpstreamError && error.trouble === 'unreachable';
