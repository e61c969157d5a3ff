import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';

/** Forgets what is over: changes that every name server has read, owners that no request can still be on its way for. */
@Injectable()
export class Housekeeping implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  onApplicationBootstrap(): void {
    this.timer = setInterval(() => {
      this.run().catch((err: unknown) => this.runtime.log.warn({ err }, 'housekeeping of dns failed'));
    }, 600_000).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** One round. A name server that was away for longer reads whole zones. */
  async run(): Promise<void> {
    await this.database.transaction(async (tx) => {
      await tx.query("delete from zone_change where at < now() - interval '1 hour'");
      await tx.query("delete from released_owner where at < now() - interval '7 days'");
    });
  }
}
