import { ModuleRef } from '@nestjs/core';
import { hear, OutboxRelay, type Subscription } from '@nebo/bus';
import type { Database } from '@nebo/persistence';
import type { ServiceDefinition } from './boot.js';
import { HealthRegistry } from './health.js';
import type { Runtime } from './runtime.js';

/** Starts what a service hears (subscriptions) and says (outbox relay) with the application, and ends both with it. */
export class EventsRunner {
  static provider(definition: ServiceDefinition, runtime: Runtime, database: Database) {
    return {
      provide: EventsRunner,
      useFactory: (modules: ModuleRef, health: HealthRegistry) =>
        new EventsRunner(definition, runtime, database, modules, health),
      inject: [ModuleRef, HealthRegistry],
    };
  }

  private subscription: Subscription | undefined;
  private readonly relay: OutboxRelay;
  private readonly onError: (error: Error, about: string) => void;

  constructor(
    private readonly definition: ServiceDefinition,
    private readonly runtime: Runtime,
    private readonly database: Database,
    private readonly modules: ModuleRef,
    health: HealthRegistry,
  ) {
    this.onError = (err, about) => runtime.log.warn({ err, about, service: definition.name }, 'events');
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
    });
    await this.relay.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.subscription?.close();
    await this.relay.stop();
  }
}
