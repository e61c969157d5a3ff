import { Inject, Injectable } from '@nestjs/common';
import type { AccountStanding } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import {
  accountsIn,
  ApiError,
  METRICS,
  Peers,
  RUNTIME,
  type Runtime,
  StandingWatch,
} from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';
import type { Actor } from '../events.js';
import { lockFloatingIp, releaseFloatingIp } from '../floating-ips/floating-ip.rows.js';
import { refuseOfGateway } from '../floating-ips/floating-ips.service.js';
import { AddressPool } from '../floating-ips/pool.js';
import { NatGatewaysService } from '../nat-gateways/nat-gateways.service.js';

/**
 * Public addresses cost money as long as they are held: those of accounts that are forfeited are released, with their gateways.
 * What a machine has goes when compute has removed the machine.
 */
@Injectable()
export class StandingService extends StandingWatch {
  constructor(
    private readonly database: Database,
    private readonly gateways: NatGatewaysService,
    private readonly pool: AddressPool,
    peers: Peers,
    @Inject(METRICS) metrics: Metrics,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    super(peers, metrics, runtime);
  }

  protected override async apply(standing: readonly AccountStanding[]): Promise<void> {
    const forfeited = accountsIn(standing, 'forfeited');
    if (forfeited.length === 0) return;
    const due = (sql: string) =>
      this.database.transaction((tx) => tx.query<{ id: string; account_id: string }>(sql, [forfeited]));
    const gateways = await due(
      'select vpc_id as id, account_id from nat_gateway where enabled and account_id = any($1::uuid[])',
    );
    for (const { id, account_id } of gateways)
      await unlessChanged(() => this.gateways.disable(actor(account_id), id));
    // What left a gateway goes by itself.
    const addresses = await due(
      `select id, account_id from floating_ip f where account_id = any($1::uuid[]) and released_at is null and port_id is null
         and not auto_release`,
    );
    for (const { id, account_id } of addresses)
      await unlessChanged(() =>
        this.database.transaction((tx) => this.release(tx, account_id, id), account_id),
      );
  }

  private async release(tx: Sql, account: string, id: string): Promise<void> {
    const row = await lockFloatingIp(tx, account, id);
    await refuseOfGateway(tx, row);
    if (row.port_id === null)
      await releaseFloatingIp(tx, this.pool, actor(account), row, 'the balance is used up');
  }
}

const actor = (account_id: string): Actor => ({ account_id, actor: 'service:networking' });

/** Its owner, or another replica, was first: the next comparison looks again. */
async function unlessChanged(act: () => Promise<unknown>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status >= 500) throw error;
  }
}
