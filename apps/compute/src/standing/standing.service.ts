import { Inject, Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { AccountStanding } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { accountsIn, METRICS, Peers, RUNTIME, type Runtime, StandingWatch } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';
import { says } from '../events.js';
import { removeVm } from '../vms/vm-removal.js';

interface Ending {
  id: string;
  account_id: string;
  project_id: string;
  name: string;
  handed: boolean;
}

/**
 * What becomes of machines whose account has no money left: ephemeral ones are ended as soon as nothing is left, the others
 * are stopped when the account is suspended, started again when it is in order, and removed when it is forfeited.
 */
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
    await this.setSuspended(accountsIn(standing, 'suspended', 'forfeited'));
    await this.end(
      standing.map(({ account_id }) => account_id),
      accountsIn(standing, 'forfeited'),
    );
  }

  /** Those of these accounts are suspended, and no others. One that is just being made is stopped once it is made. */
  private async setSuspended(accounts: string[]): Promise<void> {
    await this.database.transaction(async (tx) => {
      const changed = await tx.query<{ id: string }>(
        `with due as (
           select id, true as suspend from vm where deleted_at is null and provisioned_at is not null and not suspended
             and account_id = any($1::uuid[])
           union all
           select id, false from vm where suspended and deleted_at is null and account_id <> all($1::uuid[])
         ), held as (select v.id, due.suspend from vm v join due using (id) order by v.id for update of v)
         update vm v set suspended = held.suspend, generation = v.generation + (v.power = 'running')::int,
           updated_at = now() from held
         -- Looked at again under the lock: another replica may have been first.
         where v.id = held.id and v.suspended <> held.suspend and v.deleted_at is null returning v.id`,
        [accounts],
      );
      for (const { id } of changed) await wake(tx, 'vm', id);
    });
  }

  /** Ephemeral ones of these accounts, and all of the forfeited; one by one, so that none waits for another. */
  private async end(accounts: string[], forfeited: string[]): Promise<void> {
    if (accounts.length === 0) return;
    const due = await this.database.transaction((tx) =>
      tx.query<{ id: string }>(
        `select id from vm where deleted_at is null and account_id = any($1::uuid[])
           and (ephemeral or account_id = any($2::uuid[]))`,
        [accounts, forfeited],
      ),
    );
    for (const { id } of due) await this.database.transaction((tx) => this.endOne(tx, id));
  }

  private async endOne(tx: Sql, id: string): Promise<void> {
    const [vm] = await tx.query<Ending>(
      'select id, account_id, project_id, name, handed from vm where id = $1::uuid and deleted_at is null for update',
      [id],
    );
    if (!vm) return;
    await removeVm(tx, vm);
    const event = says.auditWritten(
      {
        actor: 'service:compute',
        action: 'vms_delete_vm',
        resource: `vm:${vm.id}`,
        project_id: vm.project_id,
        details: { name: vm.name, why: 'the balance is used up' },
      },
      { account: vm.account_id },
    );
    await say(tx, event);
  }
}
