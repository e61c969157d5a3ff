import { Injectable } from '@nestjs/common';
import {
  type Change,
  Lifecycle,
  minutes,
  type Outcome,
  State,
  type StepContext,
  wake,
} from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';

/** A VPC as its life sees it. */
export interface LivingVpc {
  id: string;
  region_id: string;
  deleted: boolean;
  generation: number;
  observed_generation: number | null;
  observed_state: string | null;
  observed_reason: string | null;
}

/** What the record shows of a state. */
const words: Readonly<Record<string, string>> = {
  pending: 'pending',
  active: 'active',
  error: 'error',
  removing: 'deleting',
  stuck: 'deleting',
};

const silence = 'the region has not reported it';

/**
 * Life of a VPC: pending → active ⇄ error, and from each of them removing → end. The region makes the network and
 * reports; one that is silent leads to `error` with the reason, and its later word leads out again.
 */
@Injectable()
export class VpcLifecycle extends Lifecycle<LivingVpc> {
  override readonly kind = 'vpc';

  override async load(tx: Sql, id: string): Promise<LivingVpc | null> {
    const [row] = await tx.query<LivingVpc>(
      `select id, region_id, deleted_at is not null as deleted, generation, observed_generation, observed_state, observed_reason
       from vpc where id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** State and reason show in the VPC's own row. */
  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    if (to === null) return;
    await tx.query('update vpc set status = $2, status_reason = $3 where id = $1::uuid', [
      id,
      words[to] ?? to,
      reason,
    ]);
  }

  @State({ deadline: minutes(2), onMissed: 'error' })
  pending(vpc: LivingVpc): Outcome {
    return this.settled(vpc) ?? this.wait(Infinity, silence);
  }

  @State()
  active(vpc: LivingVpc): Outcome {
    if (vpc.deleted) return this.go('removing');
    if (vpc.observed_state === 'error') return this.fail(reasonOf(vpc), 'error');
    return this.wait();
  }

  /** The agent goes on trying, so this is not for ever. */
  @State()
  error(vpc: LivingVpc, { reason }: StepContext): Outcome {
    const next = this.settled(vpc);
    const same = next?.kind === 'fail' && next.reason === reason;
    return next === null || same ? this.wait() : next;
  }

  @State({ deadline: minutes(5), onMissed: 'stuck' })
  removing(vpc: LivingVpc): Outcome {
    return this.removed(vpc) ?? this.wait(Infinity, 'the region has not reported its end');
  }

  /** Deleted, but the region does not say so: the row stays, so that the network is never forgotten on a host. */
  @State()
  stuck(vpc: LivingVpc): Outcome {
    return this.removed(vpc) ?? this.wait();
  }

  private settled(vpc: LivingVpc): Outcome | null {
    if (vpc.deleted) return this.go('removing');
    if (vpc.observed_state === 'active') return this.go('active');
    if (vpc.observed_state === 'error') return this.fail(reasonOf(vpc), 'error');
    return null;
  }

  private removed(vpc: LivingVpc): Outcome | null {
    if (vpc.observed_state !== 'gone' || vpc.observed_generation !== vpc.generation) return null;
    return this.end(async (tx) => {
      // A reader that is behind its number gets everything instead of a delta with a hole.
      await tx.query(
        `with gone as (delete from vpc where id = $1::uuid returning region_id, change)
         update feed set pruned = greatest(pruned, gone.change) from gone
         where feed.name = 'wanted:' || gone.region_id and gone.change is not null`,
        [vpc.id],
      );
      // Addresses that were still on their way out of it are out now.
      const left = await tx.query<{ id: string }>('select id from floating_ip where vpc_id = $1::uuid', [
        vpc.id,
      ]);
      for (const { id } of left) await wake(tx, 'floating_ip', id);
    });
  }
}

const reasonOf = ({ observed_reason }: LivingVpc): string =>
  observed_reason ?? 'the region could not make the network';
