import { type Envelope } from './envelope.js';

/** One delivery of an event to one handler. */
export interface Delivery {
  /** 1 at first, then higher: the transport's count, which a restart may reset. */
  attempt: number;
  /** Aborted when the subscription closes: stop what takes long; the event comes again. */
  signal: AbortSignal;
}

/** Handles one event. When it throws, the event is delivered again, later. */
export type BusHandler<T = unknown> = (event: Envelope<T>, delivery: Delivery) => Promise<void>;

/** Hears a hint; there is no second delivery, an error is only reported. */
export type HintHandler<T = unknown> = (event: Envelope<T>) => void | Promise<void>;

/** A running subscription. */
export interface Subscription {
  /** Takes nothing more, waits for handlers in flight, gives back what was not begun. */
  close(): Promise<void>;
}

/** How a durable consumer takes its events. */
export interface SubscribeOptions {
  /**
   * Name of the consumer (letters, digits, `-`, `_`; begins with the service's name). Each name gets each event at
   * least once; members that share the name, in this process or another, share the work. One name has one pattern.
   */
  durable: string;
  /** Handlers at a time in this member; 1 keeps the order of a subject as far as redelivery allows. */
  concurrency?: number;
}

export interface BusStatus {
  connected: boolean;
  /** For people: where it is connected to, or why it is not. */
  detail: string;
}

/** Publishing failed for now: nothing is known to be accepted, try again. */
export class BusUnavailable extends Error {
  override name = 'BusUnavailable';
}

/**
 * The way between services. Two transports, one contract (`test/bus.contract.ts`): NATS JetStream for production,
 * embedded for one process. A bus may lose everything; the outbox in PostgreSQL is the truth.
 */
export interface EventBus {
  /**
   * Resolves when the bus has accepted all of them, in this order per subject.
   * @throws TypeError or RangeError for an envelope that no bus would take (nothing was sent)
   * @throws BusUnavailable when some may not have been accepted: send all again, doubles are dropped by id
   */
  publish(envelopes: readonly Envelope[], signal?: AbortSignal): Promise<void>;
  /** Work: each durable gets each event at least once, also those said while none of its members was there. */
  subscribe(pattern: string, options: SubscribeOptions, handler: BusHandler): Promise<Subscription>;
  /** Hints: every process that listens now hears it, at most once (`key revoked` → every gateway). */
  subscribeAll(pattern: string, handler: HintHandler): Promise<Subscription>;
  status(): BusStatus;
  /**
   * Identity of the store behind the bus, null while unknown. When it changes, what had been accepted may be gone:
   * the outbox relay then says everything again that it sent to another store.
   */
  store(): string | null;
  /**
   * Only for transports whose store dies with the process: tells the ids that every consumer has handled, so that the
   * relay need not say them again after a restart. Returns the function that ends it.
   */
  onSettled?(listener: (ids: readonly string[]) => void): () => void;
  /** Closes all subscriptions, then the connection; handlers that do not end are left behind after 5 s. */
  close(): Promise<void>;
}

/** Told about what failed and is tried again; never throws. */
export type ErrorHook = (error: Error, about: string) => void;

/** @throws TypeError when the name cannot be a durable consumer's */
export function checkDurable(name: string): void {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) throw new TypeError(`not a consumer name: "${name}"`);
}

/** One name, one pattern: a second pattern would silently steal the first one's events. */
export class DurableNames {
  private readonly patterns = new Map<string, string>();

  /** @throws TypeError when the name is already used for another pattern */
  claim(name: string, pattern: string): void {
    checkDurable(name);
    const known = this.patterns.get(name);
    if (known !== undefined && known !== pattern) {
      throw new TypeError(`consumer ${name} already hears ${known}; give ${pattern} its own name`);
    }
    this.patterns.set(name, pattern);
  }
}
