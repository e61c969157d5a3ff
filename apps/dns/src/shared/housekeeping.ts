import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { PeriodicHousekeeping, RUNTIME, type Runtime } from '@nebo/service-kit';

/** Forgets what is over: changes that every name server has read, owners that no request can still be on its way for. */
@Injectable()
export class Housekeeping extends PeriodicHousekeeping {
  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) runtime: Runtime,
  ) {
    super('dns', runtime.log);
  }

  /** One round. A name server that was away for longer reads whole zones. */
  async run(): Promise<void> {
    await this.database.transaction(async (tx) => {
      await tx.query("delete from zone_change where at < now() - interval '1 hour'");
      await tx.query("delete from released_owner where at < now() - interval '7 days'");
    });
  }
}
