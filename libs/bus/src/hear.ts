import { type Database } from '@nebo/persistence';
import { asError } from './backoff.js';
import { type Envelope, type EventDefinition } from './envelope.js';
import {
  type Delivery,
  type ErrorHook,
  type EventBus,
  type HintHandler,
  type Subscription,
} from './event-bus.js';
import { inboxKeepMs, once, pruneInbox, type TransactionalHandler } from './inbox.js';

/** A handler with dependencies: `resolve` of `hear` makes or finds the instance (Nest: `moduleRef.get`). */
export type HandlerClass<T> = abstract new (...args: never[]) => { handle: TransactionalHandler<T> };

/** One line of a service's `hears`. */
export interface Heard {
  readonly subject: string;
  /** Name of the durable consumer; null for a hint that every process hears. */
  readonly consumer: string | null;
  readonly concurrency: number;
  readonly handler: TransactionalHandler | HandlerClass<unknown> | HintHandler;
}

/**
 * Work: the event is handled once in effect, in a transaction with the inbox.
 * @param consumer the durable consumer's name; begins with the service's name, never changes
 */
export function on<T>(
  definition: EventDefinition<T>,
  consumer: string,
  handler: TransactionalHandler<T> | HandlerClass<T>,
  options: { concurrency?: number } = {},
): Heard {
  return {
    subject: definition.subject,
    consumer,
    concurrency: options.concurrency ?? 1,
    handler: handler as TransactionalHandler | HandlerClass<unknown>,
  };
}

/** A hint: each process that runs now hears it, at most once; nothing may depend on it alone. */
export function onAll<T>(definition: EventDefinition<T>, handler: HintHandler<T>): Heard {
  return { subject: definition.subject, consumer: null, concurrency: 1, handler: handler as HintHandler };
}

export interface HearOptions {
  /** Finds the instance of a handler class (Nest: `(handler) => moduleRef.get(handler)`). */
  resolve?: (handler: HandlerClass<unknown>) => { handle(...args: never[]): Promise<void> };
  /** Runs around each handler: telemetry opens the span of `event.trace` here. */
  around?: (event: Envelope, consumer: string, run: () => Promise<void>) => Promise<void>;
  onError?: ErrorHook;
  /** How often old receipts are deleted, in milliseconds. */
  pruneEveryMs?: number;
}

/**
 * Starts all subscriptions of a service and the pruning of its inbox. Call it before the outbox relay starts.
 * @returns one subscription that closes them all
 */
export async function hear(
  bus: EventBus,
  db: Database,
  hears: readonly Heard[],
  options: HearOptions = {},
): Promise<Subscription> {
  const around = options.around ?? ((_event, _consumer, run) => run());
  const open: Subscription[] = [];
  for (const heard of hears) {
    const { subject, consumer, concurrency } = heard;
    if (consumer === null) {
      const handler = heard.handler as HintHandler;
      open.push(await bus.subscribeAll(subject, (event) => around(event, 'all', async () => handler(event))));
      continue;
    }
    const handle = once(db, consumer, handlerOf(heard, options));
    open.push(
      await bus.subscribe(subject, { durable: consumer, concurrency }, (event, delivery: Delivery) =>
        around(event, consumer, () => handle(event, delivery)),
      ),
    );
  }
  const prune = () => {
    pruneInbox(db, inboxKeepMs).catch((error) => options.onError?.(asError(error), 'prune inbox'));
  };
  const timer = setInterval(prune, options.pruneEveryMs ?? 3_600_000).unref();
  return {
    close: async () => {
      clearInterval(timer);
      await Promise.all(open.map((subscription) => subscription.close()));
    },
  };
}

function handlerOf(heard: Heard, options: HearOptions): TransactionalHandler {
  if (!isHandlerClass(heard.handler)) return heard.handler as TransactionalHandler;
  if (options.resolve === undefined)
    throw new TypeError(`${heard.consumer} is a class, but no resolve() was given`);
  const instance = options.resolve(heard.handler) as { handle: TransactionalHandler };
  return (tx, event, delivery) => instance.handle(tx, event, delivery);
}

function isHandlerClass(handler: Heard['handler']): handler is HandlerClass<unknown> {
  const { prototype } = handler as { prototype?: { handle?: unknown } };
  return typeof prototype?.handle === 'function';
}
