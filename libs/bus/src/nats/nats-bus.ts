import {
  jetstream,
  jetstreamManager,
  type JetStreamClient,
  type JetStreamManager,
  JetStreamApiError,
  RetentionPolicy,
  StorageType,
} from '@nats-io/jetstream';
import { connect, nanos, type Msg, type NatsConnection } from '@nats-io/transport-node';
import { asError, backoffMs, closeMs, sleep, within, type Backoff } from '../backoff.js';
import { checkPattern, encodeEnvelope, isEnvelope, type Envelope } from '../envelope.js';
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
import { NatsConsumer } from './nats-consumer.js';

export interface NatsBusOptions {
  /** `nats://[user:password@]host:port`, one or several. */
  servers: string | readonly string[];
  /** Shown in NATS's own lists of connections. */
  name?: string;
  /** Stream that holds everything under `nebo.`; tests that share a server take their own. */
  stream?: string;
  /** Copies of the stream in a NATS cluster. */
  replicas?: number;
  redelivery?: Backoff;
  /** Without an answer for so long a delivery goes to another member; running handlers ask for more in time. */
  ackWaitMs?: number;
  /** How long a pull request waits for events, 1000 at least; closing a subscription takes up to this long. */
  pullMs?: number;
  onError?: ErrorHook;
}

/** One living connection with a checked stream. A new one is made after every loss: `lost` tells who still holds it. */
export interface Link {
  js: JetStreamClient;
  jsm: JetStreamManager;
  lost: AbortSignal;
}

/**
 * How long the stream keeps events. Longer than the outbox keeps sent rows (1 day), shorter than the inbox keeps ids
 * (7 days): a consumer that has to be made again reads the stream from its start, and the inbox must know all of it.
 */
const keepMs = 3 * 86_400_000;
const streamNotFound = 10_059;
const retry: Backoff = { baseMs: 100, maxMs: 5_000 };

/**
 * The bus over NATS JetStream: one stream with file storage, one durable pull consumer per name. Works with Debian's
 * nats-server 2.9.10 (one filter subject per consumer). Being without NATS is a state, never an error of start:
 * `status()` shows it and connecting is tried for ever.
 */
export class NatsBus implements EventBus {
  readonly stream: string;
  readonly ackWaitMs: number;
  readonly pullMs: number;
  readonly redelivery: Backoff;
  readonly onError: ErrorHook;
  private readonly names = new DurableNames();
  private readonly consumers = new Set<NatsConsumer>();
  private readonly hints = new Set<{ pattern: string; handler: HintHandler }>();
  private readonly stopped = new AbortController();
  private readonly running: Promise<void>;
  private connection: NatsConnection | undefined;
  private link: Link | undefined;
  private linkLost = new AbortController();
  private linkWaiters = new Set<() => void>();
  /** Whose stream is looked after now. */
  private preparing: NatsConnection | undefined;
  private storeId: string | null = null;
  private detail: string;

  constructor(private readonly options: NatsBusOptions) {
    this.stream = options.stream ?? 'NEBO';
    this.ackWaitMs = options.ackWaitMs ?? 10_000;
    this.pullMs = options.pullMs ?? 3_000;
    this.redelivery = options.redelivery ?? { baseMs: 200, maxMs: 60_000 };
    this.onError = options.onError ?? (() => undefined);
    this.detail = 'connecting to NATS';
    this.running = this.run();
  }

  async publish(envelopes: readonly Envelope[], signal?: AbortSignal): Promise<void> {
    const encoded = envelopes.map((envelope) => ({ envelope, text: encodeEnvelope(envelope) }));
    const link = this.link;
    if (link === undefined) throw new BusUnavailable(this.detail);
    if (signal?.aborted) throw new BusUnavailable('publishing was aborted');
    // All at once on one connection: the server takes them in the order written, and the wait is one round trip.
    const answers = encoded.map(({ envelope, text }) =>
      link.js.publish(envelope.type, text, { msgID: envelope.id, timeout: 5_000 }),
    );
    const results = await abortable(Promise.allSettled(answers), signal);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) {
      this.check();
      throw new BusUnavailable(`NATS did not take it: ${asError(failed.reason).message}`, {
        cause: failed.reason,
      });
    }
  }

  async subscribe(pattern: string, options: SubscribeOptions, handler: BusHandler): Promise<Subscription> {
    checkPattern(pattern);
    this.names.claim(options.durable, pattern);
    if (this.stopped.signal.aborted) throw new BusUnavailable('the bus is closed');
    const consumer = new NatsConsumer(this, pattern, options, handler);
    this.consumers.add(consumer);
    return {
      close: async () => {
        this.consumers.delete(consumer);
        await consumer.close();
      },
    };
  }

  async subscribeAll(pattern: string, handler: HintHandler): Promise<Subscription> {
    checkPattern(pattern);
    const hint = { pattern, handler };
    this.hints.add(hint);
    let end = () => undefined as void;
    if (this.connection !== undefined) {
      end = this.listen(this.connection, hint);
      // The next publisher may sit at another connection: return only when the server knows of the interest.
      if (this.link !== undefined) await this.connection.flush().catch(() => undefined);
    }
    return {
      close: async () => {
        this.hints.delete(hint);
        end();
      },
    };
  }

  status(): BusStatus {
    return { connected: this.link !== undefined, detail: this.detail };
  }

  store(): string | null {
    return this.link === undefined ? null : this.storeId;
  }

  /** The living link, as soon as there is one; undefined when `signal` or the bus's end came first. */
  async ready(signal: AbortSignal): Promise<Link | undefined> {
    while (!signal.aborted && !this.stopped.signal.aborted) {
      if (this.link !== undefined) return this.link;
      await new Promise<void>((resolve) => {
        const done = () => {
          this.linkWaiters.delete(done);
          signal.removeEventListener('abort', done);
          this.stopped.signal.removeEventListener('abort', done);
          resolve();
        };
        this.linkWaiters.add(done);
        signal.addEventListener('abort', done);
        this.stopped.signal.addEventListener('abort', done);
      });
    }
    return undefined;
  }

  /** Something was missing on the server: looks after the stream again, in the background. */
  check(): void {
    if (this.connection !== undefined && this.link !== undefined)
      void this.prepare(this.connection, 'checking the stream');
  }

  async close(): Promise<void> {
    if (this.stopped.signal.aborted) return this.running;
    await within(closeMs, Promise.all([...this.consumers].map((consumer) => consumer.close())));
    this.stopped.abort();
    this.detail = 'closed';
    this.drop('closed');
    const connection = this.connection;
    if (connection !== undefined && !connection.isClosed()) {
      await within(2_000, connection.drain());
      await connection.close().catch(() => undefined);
    }
    await this.running;
  }

  /** Connects for ever: the client reconnects by itself, this loop begins again when it gave up (refused credentials). */
  private async run(): Promise<void> {
    for (let attempt = 1; !this.stopped.signal.aborted; attempt += 1) {
      try {
        const connection = await connect({ ...addresses(this.options.servers), ...this.settings() });
        this.connection = connection;
        attempt = 1;
        for (const hint of this.hints) this.listen(connection, hint);
        void this.watch(connection);
        void this.prepare(connection, 'connected');
        const reason = await connection.closed();
        this.drop(`connection closed${reason ? `: ${reason.message}` : ''}`);
        this.connection = undefined;
      } catch (error) {
        this.drop(`NATS cannot be reached: ${asError(error).message}`);
      }
      await sleep(backoffMs(attempt, retry), this.stopped.signal);
    }
  }

  private settings() {
    return {
      name: this.options.name ?? 'nebo',
      reconnect: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 250,
      timeout: 3_000,
      // A half-open connection is found in 20 s instead of four minutes.
      pingInterval: 10_000,
      maxPingOut: 2,
    };
  }

  private async watch(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type === 'disconnect') this.drop('NATS is away, reconnecting');
      if (status.type === 'reconnect') void this.prepare(connection, 'reconnected');
    }
  }

  /** Nobody may use the old link: its acknowledgements could hit other messages of a new store. */
  private drop(detail: string): void {
    if (!this.stopped.signal.aborted) this.detail = detail;
    this.link = undefined;
    this.linkLost.abort();
  }

  /** Makes sure of the stream, then opens a new link. Repeats until it works or the connection is lost again. */
  private async prepare(connection: NatsConnection, why: string): Promise<void> {
    if (this.preparing === connection) return;
    this.preparing = connection;
    // A later connection has its own turn: this one may still sleep when it comes.
    const isOver = () =>
      this.stopped.signal.aborted || connection.isClosed() || this.preparing !== connection;
    try {
      for (let attempt = 1; !isOver(); attempt += 1) {
        try {
          const jsm = await jetstreamManager(connection, { checkAPI: false, timeout: 3_000 });
          const store = await this.ensureStream(jsm);
          if (isOver()) return;
          if (this.link !== undefined && store === this.storeId) return;
          this.drop(why);
          this.storeId = store;
          this.linkLost = new AbortController();
          this.link = { js: jetstream(connection, { timeout: 5_000 }), jsm, lost: this.linkLost.signal };
          this.detail = `NATS ${connection.getServer()}, stream ${this.stream}`;
          for (const waiter of this.linkWaiters) waiter();
          return;
        } catch (error) {
          if (isOver()) return;
          this.drop(`JetStream is not ready: ${asError(error).message}`);
          await sleep(backoffMs(attempt, retry), this.stopped.signal);
        }
      }
    } finally {
      if (this.preparing === connection) this.preparing = undefined;
    }
  }

  /** The stream's identity: made again after a wipe it has another birth time. */
  private async ensureStream(jsm: JetStreamManager): Promise<string> {
    try {
      const info = await jsm.streams.info(this.stream);
      return `${this.stream}:${info.created}`;
    } catch (error) {
      if (!(error instanceof JetStreamApiError) || error.code !== streamNotFound) throw error;
    }
    const info = await jsm.streams.add({
      name: this.stream,
      subjects: ['nebo.>'],
      storage: StorageType.File,
      retention: RetentionPolicy.Limits,
      max_age: nanos(keepMs),
      duplicate_window: nanos(120_000),
      num_replicas: this.options.replicas ?? 1,
    });
    return `${this.stream}:${info.created}`;
  }

  /** Hints ride on the plain subject: JetStream stores what is published there, and live listeners hear it as well. */
  private listen(connection: NatsConnection, hint: { pattern: string; handler: HintHandler }): () => void {
    const subscription = connection.subscribe(hint.pattern, {
      callback: (error, message) => {
        if (error !== null) this.onError(error, `hint ${hint.pattern}`);
        else void this.hear(hint.handler, message);
      },
    });
    return () => subscription.unsubscribe();
  }

  private async hear(handler: HintHandler, message: Msg): Promise<void> {
    try {
      const event: unknown = message.json();
      if (!isEnvelope(event)) throw new TypeError('not an event envelope');
      await handler(event);
    } catch (error) {
      this.onError(asError(error), `hint ${message.subject}`);
    }
  }
}

/** nats.js does not read credentials from the address, people write them there. */
function addresses(servers: string | readonly string[]): { servers: string[]; user?: string; pass?: string } {
  const urls = (typeof servers === 'string' ? servers.split(',') : servers).map(
    (server) => new URL(server.includes('://') ? server.trim() : `nats://${server.trim()}`),
  );
  const login = urls.find((url) => url.username !== '');
  return {
    servers: urls.map((url) => `${url.protocol}//${url.host}`),
    ...(login && { user: decodeURIComponent(login.username), pass: decodeURIComponent(login.password) }),
  };
}

async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  let stop = () => undefined as void;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(new BusUnavailable('publishing was aborted'));
    signal.addEventListener('abort', stop, { once: true });
  });
  return Promise.race([work, aborted]).finally(() => signal.removeEventListener('abort', stop));
}
