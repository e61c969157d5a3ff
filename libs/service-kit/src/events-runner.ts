import { ModuleRef } from '@nestjs/core';
import { hear, OutboxRelay, type Subscription } from '@nebo/bus';
import type { Database } from '@nebo/persistence';
import { type Metrics, withSpan } from '@nebo/telemetry';
import type { ServiceDefinition } from './boot.js';
import { HealthRegistry } from './health.js';
import type { Runtime } from './runtime.js';

/** Starts what a service hears (subscriptions) and says (outbox relay) with the application, and ends both with it. */
export class EventsRunner {
  static provider(definition: ServiceDefinition, runtime: Runtime, database: Database, metrics: Metrics) {
    return {
      provide: EventsRunner,
      useFactory: (modules: ModuleRef, health: HealthRegistry) =>
        new EventsRunner(definition, runtime, database, metrics, modules, health),
      inject: [ModuleRef, HealthRegistry],
    };
  }

  private subscription: Subscription | undefined;
  private endRefresh: (() => void) | undefined;
  private readonly relay: OutboxRelay;
  private readonly onError: (error: Error, about: string) => void;

  constructor(
    private readonly definition: ServiceDefinition,
    private readonly runtime: Runtime,
    private readonly database: Database,
    private readonly metrics: Metrics,
    private readonly modules: ModuleRef,
    health: HealthRegistry,
  ) {
    this.onError = (err, about) => {
      metrics.failure('events');
      runtime.log.warn({ err, about, service: definition.name }, 'events');
    };
    this.relay = new OutboxRelay(database, runtime.bus, { onError: this.onError });
    // Work goes on without the bus: events wait in the outbox. So it is shown, not required.
    health.add('bus', () => {
      const { connected, detail } = runtime.bus.status();
      return { ok: connected, required: false, detail };
    });
  }

  /** Hears before it says: nothing said at start may pass unheard. */
  async onApplicationBootstrap(): Promise<void> {
    this.subscription = await hear(this.runtime.bus, this.database, this.definition.hears ?? [], {
      resolve: (handler) => this.modules.get(handler as never, { strict: false }),
      onError: this.onError,
      // The handler's work belongs to the trace of the request that caused the event.
      around: (event, consumer, run) =>
        withSpan(`event ${event.type}`, () => ({ 'nebo.event': event.id, 'nebo.consumer': consumer }), run, {
          parent: event.trace,
          kind: 'consumer',
        }),
    });
    await this.relay.start();
    this.endRefresh = this.runtime.figures.beforeScrape(async () => {
      const { unsent, oldestMs } = await this.relay.backlog();
      this.metrics.outbox(unsent, oldestMs);
    });
  }

  async onModuleDestroy(): Promise<void> {
    this.endRefresh?.();
    await this.subscription?.close();
    await this.relay.stop();
  }
}
