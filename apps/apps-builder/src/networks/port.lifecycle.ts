import { Injectable } from '@nestjs/common';
import type { PortClaimRequest, PortInfo, PortReleaseRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, seconds, State, type StepContext, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, Peers } from '@nebo/service-kit';

/** A port as its life sees it. */
export interface LivingPort {
  id: string;
  account_id: string;
  app_id: string;
  project_id: string;
  region_id: string;
  vpc_id: string;
  replica_id: string | null;
  run_id: string | null;
  trouble: string | null;
  /** What sits on it shall go. */
  leaving: boolean;
  /** The region has said that what sat on it is gone, or nothing of it is known here any more. */
  left: boolean;
}

/** Why a claim is refused, by networking's code, in words for the app's owner. */
const refusals: Readonly<Record<string, string>> = {
  not_found: 'the private network of this app does not exist any more: set another vpc_id, or null',
  subnet_full:
    'the private network of this app has no free address left: use a larger one, fewer replicas, or the strategy recreate',
  vpc_region_mismatch: 'the private network of this app lies in another region: set another vpc_id, or null',
};

/** Networking that is away is asked again after this time at the latest: somebody waits for his app. */
const longestWaitMs = seconds(30);

/**
 * Life of a port that a replica or a job run sits on: claiming → held → releasing → end, or claiming → refused. Networking
 * knows it by an id that was kept before the first call, so a claim and a release may each be made again. It is given back
 * only when the region has said that what sat on it is gone: no address goes to another one that somebody still uses.
 */
@Injectable()
export class PortLifecycle extends Lifecycle<LivingPort> {
  override readonly kind = 'app_port';

  constructor(
    private readonly database: Database,
    private readonly peers: Peers,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<LivingPort | null> {
    const [row] = await tx.query<LivingPort>(
      `select t.id, t.account_id, t.app_id, t.project_id, t.region_id, t.vpc_id, t.replica_id, t.run_id, t.trouble,
         coalesce(p.gone, j.gone, true) as leaving,
         case when t.replica_id is not null then p.id is null or p.ended_at is not null
           else j.id is null or coalesce(j.observed_state, 'running') <> 'running' end as "left"
       from app_port t left join replica p on p.id = t.replica_id left join job_run j on j.id = t.run_id
       where t.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** Networking that is away is asked again, later and later; what waits says why. */
  @State()
  async claiming(port: LivingPort, { enteredAt }: StepContext): Promise<Outcome> {
    if (port.left) return this.go('releasing');
    if (port.leaving) return this.wait();
    const request: PortClaimRequest = {
      operation_id: port.id,
      account_id: port.account_id,
      kind: 'replica',
      owner: `app:${port.app_id}`,
      project_id: port.project_id,
      vpc_id: port.vpc_id,
      region_id: port.region_id,
    };
    let claimed: PortInfo;
    try {
      claimed = await this.peers.call<PortInfo>('networking', '/internal/v1/ports/claim', {
        account: port.account_id,
        body: request,
        operationId: port.id,
      });
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        const reason = refusals[error.code] ?? error.message;
        return this.go('refused', (tx) => this.refuse(tx, port, reason));
      }
      await this.tell(port, 'the private network could not be asked for an address yet');
      const age = Date.now() - enteredAt.getTime();
      return this.wait(Math.min(longestWaitMs, Math.max(500, age / 2)), String(error));
    }
    return this.go('held', (tx) => this.give(tx, port, claimed));
  }

  @State()
  held(port: LivingPort): Outcome {
    return port.left ? this.go('releasing') : this.wait();
  }

  /** There is none, and there will be none under this id. */
  @State()
  refused(port: LivingPort): Outcome {
    return port.left ? this.go('releasing') : this.wait();
  }

  /** Also for a port that was never claimed: then no late claim makes anything. */
  @State()
  async releasing(port: LivingPort): Promise<Outcome> {
    const request: PortReleaseRequest = { operation_id: port.id, account_id: port.account_id };
    await this.peers.call('networking', '/internal/v1/ports/release', {
      account: port.account_id,
      body: request,
      operationId: `release:${port.id}`,
    });
    return this.end((tx) => tx.query('delete from app_port where id = $1::uuid', [port.id]));
  }

  /** Keeps what was claimed and has the region hear of what sits on it. */
  private async give(tx: Sql, port: LivingPort, { mac, address, prefix, gateway }: PortInfo): Promise<void> {
    await tx.query(
      `update app_port set mac = $2, address = $3, prefix = $4::int, gateway = $5, trouble = null where id = $1::uuid`,
      [port.id, mac, address, prefix, gateway],
    );
    await tx.query(
      'update replica set generation = generation + 1 where id = $1::uuid and not gone and ended_at is null',
      [port.replica_id],
    );
    await tx.query(
      "update job_run set generation = generation + 1 where id = $1::uuid and not gone and status in ('queued', 'running')",
      [port.run_id],
    );
  }

  /** A replica without its address has failed like one that did not start: its rollout says so and tries again. */
  private async refuse(tx: Sql, port: LivingPort, reason: string): Promise<void> {
    await tx.query('update app_port set refused = $2, trouble = null where id = $1::uuid', [port.id, reason]);
    await tx.query(
      `update replica set observed_generation = generation, observed_state = 'failed', observed_reason = $2, observed_at = now(),
         received_at = now() where id = $1::uuid and not gone and ended_at is null`,
      [port.replica_id, reason],
    );
    await this.wakeSitter(tx, port);
  }

  private async tell(port: LivingPort, trouble: string): Promise<void> {
    if (port.trouble === trouble) return;
    await this.database.transaction(async (tx) => {
      await tx.query('update app_port set trouble = $2 where id = $1::uuid', [port.id, trouble]);
      await this.wakeSitter(tx, port);
    });
  }

  private async wakeSitter(tx: Sql, { app_id, run_id }: LivingPort): Promise<void> {
    if (run_id === null) await wake(tx, 'rollout', app_id);
    else await wake(tx, 'job_run', run_id);
  }
}
