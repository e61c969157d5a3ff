import { Inject, Injectable } from '@nestjs/common';
import type { AccountStanding } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import { accountsIn, METRICS, Peers, RUNTIME, type Runtime, StandingWatch } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';

/** Stops the replicas of accounts that are suspended, and starts them again when the account is in order. */
@Injectable()
export class StandingService extends StandingWatch {
  constructor(
    private readonly database: Database,
    peers: Peers,
    @Inject(METRICS) metrics: Metrics,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    super(peers, metrics, runtime);
  }

  protected override async apply(standing: readonly AccountStanding[]): Promise<void> {
    const accounts = accountsIn(standing, 'suspended', 'forfeited');
    await this.database.transaction(async (tx) => {
      const changed = await tx.query<{ id: string }>(
        `with due as (
           select id, true as suspend from app where deleted_at is null and not suspended and account_id = any($1::uuid[])
           union all
           select id, false from app where deleted_at is null and suspended and account_id <> all($1::uuid[])
         ), held as (select a.id, due.suspend from app a join due using (id) order by a.id for update of a)
         update app a set suspended = held.suspend from held
         -- Looked at again under the lock: another replica may have been first.
         where a.id = held.id and a.suspended <> held.suspend returning a.id`,
        [accounts],
      );
      for (const { id } of changed) await wake(tx, 'rollout', id);
    });
  }
}
