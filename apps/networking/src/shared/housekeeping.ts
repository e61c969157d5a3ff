import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { PeriodicHousekeeping, RUNTIME, type Runtime } from '@nebo/service-kit';

/** Forgets what is over: ids of released ports, which no claim can still be on its way for; addresses that no lease has any more. */
@Injectable()
export class Housekeeping extends PeriodicHousekeeping {
  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) runtime: Runtime,
  ) {
    super('networking', runtime.log);
  }

  async run(): Promise<void> {
    await this.database.query("delete from released_port where at < now() - interval '7 days'");
    await this.database.query('delete from resting_address where until < now()');
  }
}
