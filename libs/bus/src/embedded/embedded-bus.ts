import { randomUUID } from 'node:crypto';
import { asError, closeMs, within, type Backoff } from '../backoff.js';
import { checkPattern, encodeEnvelope, matches, type Envelope } from '../envelope.js';
import {
  BusUnavailable,
  DurableNames,
  type BusHandler,
  type BusStatus,
  type ErrorHook,
  type EventBus,
  type HintHandler,
  type SubscribeOptions,
  type Subscription,
} from '../event-bus.js';
import { EmbeddedConsumer, type Item } from './embedded-consumer.js';

export interface EmbeddedBusOptions {
  /** Wait before a failed delivery is tried again. */
  redelivery?: Backoff;
  /**
   * Events of a process's first milliseconds are not called settled before this time: a consumer that subscribes
   * late in the start must still get them, also when the process is killed in between.
   */
  graceMs?: number;
  onError?: ErrorHook;
}

/** A second publish of the same id within this time is dropped, as JetStream's duplicate window does. */
const duplicateMs = 120_000;
/** What a consumer that subscribes for the first time still gets, as a JetStream consumer would get the stream. */
const historyItems = 10_000;
const historyBytes = 32 * 1024 * 1024;

/**
 * The bus inside one process. It keeps nothing over a restart: its `store()` is new in each process, so the outbox relay
 * says again whatever had not been settled.
 */
export class EmbeddedBus implements EventBus {
  private readonly id = `embedded:${randomUUID()}`;
  private readonly openedAt = Date.now();
  private readonly redelivery: Backoff;
  private readonly graceMs: number;
  private readonly onError: ErrorHook;
  private readonly names = new DurableNames();
  private readonly consumers = new Map<string, EmbeddedConsumer>();
  private readonly hints = new Set<{ pattern: string; handler: HintHandler }>();
  private readonly settledListeners = new Set<(ids: readonly string[]) => void>();
  /** Insertion order is age: the oldest are at the front. */
  private readonly known = new Map<string, Item>();
  private knownBytes = 0;
  private settledIds: string[] = [];
  private settling: NodeJS.Immediate | undefined;
  private graceTimer: NodeJS.Timeout | undefined;
  private closed = false;

  constructor(options: EmbeddedBusOptions = {}) {
    this.redelivery = options.redelivery ?? { baseMs: 200, maxMs: 60_000 };
    this.graceMs = options.graceMs ?? 10_000;
    this.onError = options.onError ?? (() => undefined);
  }

  async publish(envelopes: readonly Envelope[], signal?: AbortSignal): Promise<void> {
    // Encoding first: one envelope that nobody can take must not leave half of the batch behind.
    const encoded = envelopes.map((envelope) => ({ envelope, text: encodeEnvelope(envelope) }));
    if (this.closed) throw new BusUnavailable('the embedded bus is closed');
    if (signal?.aborted) throw new BusUnavailable('publishing was aborted');
    this.forget();
    for (const { envelope, text } of encoded) this.accept(envelope, text);
  }

  async subscribe(pattern: string, options: SubscribeOptions, handler: BusHandler): Promise<Subscription> {
    checkPattern(pattern);
    this.names.claim(options.durable, pattern);
    if (this.closed) throw new BusUnavailable('the embedded bus is closed');
    let consumer = this.consumers.get(options.durable);
    if (consumer === undefined) {
      consumer = new EmbeddedConsumer(options.durable, pattern, this.redelivery, this.onError, (item) =>
        this.handled(item),
      );
      this.consumers.set(options.durable, consumer);
      for (const item of this.known.values()) {
        if (matches(pattern, item.type)) consumer.push(item);
      }
    }
    return consumer.join(handler, options.concurrency ?? 1);
  }

  async subscribeAll(pattern: string, handler: HintHandler): Promise<Subscription> {
    checkPattern(pattern);
    const hint = { pattern, handler };
    this.hints.add(hint);
    return {
      close: async () => {
        this.hints.delete(hint);
      },
    };
  }

  status(): BusStatus {
    return this.closed
      ? { connected: false, detail: 'embedded, closed' }
      : { connected: true, detail: `embedded, ${this.consumers.size} consumers` };
  }

  store(): string | null {
    return this.closed ? null : this.id;
  }

  onSettled(listener: (ids: readonly string[]) => void): () => void {
    this.settledListeners.add(listener);
    return () => this.settledListeners.delete(listener);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    this.hints.clear();
    await within(closeMs, Promise.all([...this.consumers.values()].map((consumer) => consumer.close())));
    clearTimeout(this.graceTimer);
    clearImmediate(this.settling);
    this.tellSettled();
  }

  private accept(envelope: Envelope, text: string): void {
    const before = this.known.get(envelope.id);
    if (before !== undefined) {
      // Its sender may be another relay, which also waits to hear that it is settled.
      if (before.waiting === 0) this.handled(before);
      return;
    }
    const item: Item = { id: envelope.id, type: envelope.type, text, at: Date.now(), waiting: 0 };
    this.known.set(item.id, item);
    this.knownBytes += text.length;
    for (const consumer of this.consumers.values()) {
      if (matches(consumer.pattern, item.type)) consumer.push(item);
    }
    for (const { pattern, handler } of this.hints) {
      if (matches(pattern, item.type)) setImmediate(() => this.hint(handler, item));
    }
    if (item.waiting === 0) this.handled(item);
  }

  private async hint(handler: HintHandler, item: Item): Promise<void> {
    try {
      await handler(JSON.parse(item.text) as Envelope);
    } catch (error) {
      this.onError(asError(error), `hint ${item.type}`);
    }
  }

  /** Every consumer of now has handled it. */
  private handled(item: Item): void {
    const wait = this.openedAt + this.graceMs - Date.now();
    if (wait > 0 && !this.closed) {
      this.graceTimer ??= setTimeout(() => this.endGrace(), wait).unref();
      return;
    }
    this.settle(item);
  }

  private settle(item: Item): void {
    this.settledIds.push(item.id);
    this.settling ??= setImmediate(() => this.tellSettled());
  }

  private endGrace(): void {
    this.graceTimer = undefined;
    for (const item of this.known.values()) {
      if (item.waiting === 0) this.handled(item);
    }
  }

  private tellSettled(): void {
    this.settling = undefined;
    const ids = this.settledIds;
    this.settledIds = [];
    if (ids.length === 0) return;
    for (const listener of this.settledListeners) listener(ids);
  }

  /** Bounds the memory of past events; one that still waits for a consumer lives on in that consumer's queue. */
  private forget(): void {
    const old = Date.now() - duplicateMs;
    for (const item of this.known.values()) {
      const tooMany = this.known.size > historyItems || this.knownBytes > historyBytes;
      if (!tooMany && (item.at > old || this.known.size <= historyItems / 2)) break;
      if (item.waiting === 0 && this.graceTimer !== undefined) this.settle(item);
      this.known.delete(item.id);
      this.knownBytes -= item.text.length;
    }
  }
}
