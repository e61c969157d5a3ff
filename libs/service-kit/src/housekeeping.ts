import type { OnApplicationBootstrap, OnModuleDestroy } from '@nestjs/common';
import type { Runtime } from './runtime.js';

/** Work of a service that nobody waits for, every ten minutes. A round that fails is logged; the next one makes up for it. */
export abstract class PeriodicHousekeeping implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  /** @param service its name, for the log */
  constructor(
    private readonly service: string,
    private readonly log: Runtime['log'],
  ) {}

  /** One round; several at once and one that was broken off do no harm. */
  abstract run(): Promise<void>;

  onApplicationBootstrap(): void {
    this.timer = setInterval(() => {
      this.run().catch((err: unknown) => this.log.warn({ err }, `housekeeping of ${this.service} failed`));
    }, 600_000).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }
}
