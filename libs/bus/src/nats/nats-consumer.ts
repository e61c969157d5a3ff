import { AckPolicy, DeliverPolicy, JetStreamApiError, type Consumer, type JsMsg } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { asError, backoffMs, sleep } from '../backoff.js';
import { isEnvelope, type Envelope } from '../envelope.js';
import { type BusHandler, type SubscribeOptions } from '../event-bus.js';
import { type Link, type NatsBus } from './nats-bus.js';

const consumerNotFound = 10_014;
interface Held {
  message: JsMsg;
  link: Link;
}

/**
 * One member of a durable consumer. Pulls no more than it can hold, answers each message by itself, and begins again
 * (consumer included) whenever the link was lost, since the store may be another one.
 */
export class NatsConsumer {
  private readonly stopping = new AbortController();
  private readonly waiting: Held[] = [];
  private readonly held = new Set<Held>();
  private readonly concurrency: number;
  private readonly prefetch: number;
  private readonly keepAlive: NodeJS.Timeout;
  private readonly loop: Promise<void>;
  private busy = new Set<Promise<void>>();
  private wakeSpace: (() => void) | undefined;

  constructor(
    private readonly bus: NatsBus,
    private readonly pattern: string,
    private readonly options: SubscribeOptions,
    private readonly handler: BusHandler,
  ) {
    this.concurrency = options.concurrency ?? 1;
    this.prefetch = this.concurrency * 16;
    this.keepAlive = setInterval(() => this.askForTime(), bus.ackWaitMs / 3).unref();
    this.loop = this.run();
  }

  /**
   * Takes nothing more, waits for running handlers, gives back what was not begun. The open pull request is left to
   * expire: what the server sends to one that was cut would come to another member only after the acknowledgement
   * time-out, and what is given back before its end would come right back here.
   */
  async close(): Promise<void> {
    this.stopping.abort();
    this.wakeSpace?.();
    await Promise.all([this.loop, ...this.busy]);
    for (const held of this.waiting.splice(0)) {
      this.answer(held, (message) => message.nak());
      this.held.delete(held);
    }
    clearInterval(this.keepAlive);
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.stopping.signal.aborted) {
      const link = await this.bus.ready(this.stopping.signal);
      if (link === undefined) return;
      try {
        const consumer = await this.ensure(link);
        while (!this.stopping.signal.aborted && !link.lost.aborted) {
          await this.pull(consumer, link);
          failures = 0;
        }
      } catch (error) {
        if (link.lost.aborted || this.stopping.signal.aborted) continue;
        failures += 1;
        this.bus.onError(asError(error), `consumer ${this.options.durable}`);
        this.bus.check();
        await sleep(backoffMs(failures, { baseMs: 100, maxMs: 5_000 }), this.stopping.signal);
      }
    }
  }

  private async ensure(link: Link): Promise<Consumer> {
    const { stream } = this.bus;
    const name = this.options.durable;
    const wanted = { filter_subject: this.pattern, ack_wait: nanos(this.bus.ackWaitMs) };
    try {
      const { config } = await link.jsm.consumers.info(stream, name);
      if (config.filter_subject !== wanted.filter_subject || config.ack_wait !== wanted.ack_wait) {
        await link.jsm.consumers.update(stream, name, wanted);
      }
    } catch (error) {
      if (!(error instanceof JetStreamApiError) || error.code !== consumerNotFound) throw error;
      await link.jsm.consumers.add(stream, {
        durable_name: name,
        ack_policy: AckPolicy.Explicit,
        // From the stream's start: an event said before its first listener came is heard too, and the inbox drops doubles.
        deliver_policy: DeliverPolicy.All,
        max_deliver: -1,
        max_ack_pending: 1_024,
        ...wanted,
      });
    }
    return link.js.consumers.get(stream, name);
  }

  private async pull(consumer: Consumer, link: Link): Promise<void> {
    const space = this.prefetch - this.held.size;
    if (space < Math.ceil(this.prefetch / 2)) {
      await new Promise<void>((resolve) => (this.wakeSpace = resolve));
      return;
    }
    const batch = await consumer.fetch({ max_messages: space, expires: this.bus.pullMs });
    const stop = () => void batch.close();
    if (link.lost.aborted) stop();
    link.lost.addEventListener('abort', stop);
    try {
      for await (const message of batch) this.take({ message, link });
    } finally {
      link.lost.removeEventListener('abort', stop);
    }
  }

  private take(held: Held): void {
    this.held.add(held);
    this.waiting.push(held);
    this.pump();
  }

  private pump(): void {
    while (this.busy.size < this.concurrency && !this.stopping.signal.aborted) {
      const held = this.waiting.shift();
      if (held === undefined) return;
      const work = this.deliver(held).finally(() => {
        this.busy.delete(work);
        this.held.delete(held);
        if (this.held.size <= this.prefetch / 2) this.wakeSpace?.();
        this.pump();
      });
      this.busy.add(work);
    }
  }

  private async deliver(held: Held): Promise<void> {
    const { message } = held;
    const about = `${this.options.durable} ${message.subject}`;
    let event: Envelope;
    try {
      const parsed: unknown = message.json();
      if (!isEnvelope(parsed)) throw new TypeError('not an event envelope');
      event = parsed;
    } catch (error) {
      // It will never become readable: say so once instead of taking it for ever.
      this.bus.onError(asError(error), about);
      this.answer(held, () => message.term());
      return;
    }
    const attempt = message.info.deliveryCount;
    try {
      await this.handler(event, { attempt, signal: this.stopping.signal });
      this.answer(held, () => message.ack());
    } catch (error) {
      this.bus.onError(asError(error), `${about} ${event.id}`);
      this.answer(held, () => message.nak(backoffMs(attempt, this.bus.redelivery)));
    }
  }

  /**
   * Answers only on the link that brought the message: an answer names stream and sequence, so after a wipe it would
   * acknowledge another message of the new store. Unanswered ones come again and the inbox drops them.
   */
  private answer(held: Held, send: (message: JsMsg) => void): void {
    if (!held.link.lost.aborted) send(held.message);
  }

  private askForTime(): void {
    for (const held of this.held) this.answer(held, (message) => message.working());
  }
}
