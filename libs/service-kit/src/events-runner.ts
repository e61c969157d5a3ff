import type { Type } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import type { DataOf, Envelope, EventDefinition, Subscription } from '@nebo/bus';
import { Database, type Sql } from '@nebo/persistence';
import type { ServiceDefinition } from './boot.js';
import { HealthRegistry } from './health.js';
import type { Runtime } from './runtime.js';

/** Takes an event in the transaction in which its double would be dropped. */
export interface EventHandler<T> {
  handle(event: Envelope<T>, tx: Sql): Promise<void>;
}

/** Takes a hint: every process hears it, at most once. */
export interface HintHandler<T> {
  hint(event: Envelope<T>): void | Promise<void>;
}

/** One line of a service's `hears`. */
export interface Hearing {
  event: EventDefinition<unknown>;
  /** Name under which the service takes the event; null for a hint that every process hears. */
  consumer: string | null;
  handler: Type<EventHandler<unknown>> | Type<HintHandler<unknown>>;
}

/** The service takes each event once; several replicas share the work. */
export function hear<D extends EventDefinition<never>>(event: D, consumer: string, handler: Type<EventHandler<DataOf<D>>>): Hearing {
  return { event: event as unknown as EventDefinition<unknown>, consumer, handler: handler as Type<EventHandler<unknown>> };
}

/** Every process of the service hears it; nothing is kept for one that is away. */
export function hearHint<D extends EventDefinition<never>>(event: D, handler: Type<HintHandler<DataOf<D>>>): Hearing {
  return { event: event as unknown as EventDefinition<unknown>, consumer: null, handler: handler as Type<HintHandler<unknown>> };
}

/** Starts what a service says (outbox relay) and hears (subscriptions) with the application, and ends both with it. */
export class EventsRunner {
  static provider(definition: ServiceDefinition, runtime: Runtime, database: Database) {
    return {
      provide: EventsRunner,
      useFactory: (modules: ModuleRef, health: HealthRegistry) => new EventsRunner(definition, runtime, database, modules, health),
      inject: [ModuleRef, HealthRegistry],
    };
  }

  private readonly open: (() => Promise<unknown>)[] = [];

  constructor(
    private readonly definition: ServiceDefinition,
    private readonly runtime: Runtime,
    private readonly database: Database,
    private readonly modules: ModuleRef,
    health: HealthRegistry,
  ) {
    // Work goes on without the bus: events wait in the outbox. So it is shown, not required.
    health.add('bus', () => {
      const { connected, detail } = runtime.bus.status();
      return { ok: connected, required: false, detail };
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    for (const hearing of this.definition.hears ?? []) this.open.push(await this.subscribe(hearing));
  }

  private async subscribe({ event, consumer, handler }: Hearing): Promise<() => Promise<unknown>> {
    const instance = this.modules.get<EventHandler<unknown> & HintHandler<unknown>>(handler, { strict: false });
    let subscription: Subscription;
    if (consumer === null) {
      subscription = await this.runtime.bus.subscribeAll(event.subject, (envelope) => instance.hint(envelope));
    } else {
      subscription = await this.runtime.bus.subscribe(event.subject, { durable: consumer }, (envelope) =>
        this.database.transaction(async (tx) => {
          await instance.handle(envelope, tx);
        }),
      );
    }
    return () => subscription.close();
  }

  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.open.map((close) => close()));
  }
}
