import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';

/** Forgets what is over: ids of released ports, which no claim can still be on its way for; addresses that no lease has any more. */
@Injectable()
export class Housekeeping implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  onApplicationBootstrap(): void {
    this.timer = setInterval(() => {
      this.run().catch((err: unknown) => this.runtime.log.warn({ err }, 'housekeeping of networking failed'));
    }, 600_000).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** One round. */
  async run(): Promise<void> {
    await this.database.query("delete from released_port where at < now() - interval '7 days'");
    await this.database.query('delete from resting_address where until < now()');
  }
}
