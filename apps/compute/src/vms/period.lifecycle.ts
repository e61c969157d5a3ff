import { Injectable } from '@nestjs/common';
import { hours, Lifecycle, type Outcome, State, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { ApiError } from '@nebo/service-kit';
import { readVm, type VmRow } from './vm.rows.js';
import { VmRenewals } from './vm-renewals.service.js';

/**
 * The paid time of a machine that was made: paid → renewing → paid, or → expiring → unpaid until its owner pays. It ends
 * with the machine. Billing that is away stops nobody's machine for an hour (→ late); what it had charged before is found again
 * when it is back, and the machine runs on.
 */
@Injectable()
export class PeriodLifecycle extends Lifecycle<VmRow> {
  override readonly kind = 'vm_period';

  constructor(private readonly renewals: VmRenewals) {
    super();
  }

  override load(tx: Sql, id: string): Promise<VmRow | null> {
    return readVm(tx, id);
  }

  @State()
  paid(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.end();
    const left = (vm.paid_until?.getTime() ?? 0) - Date.now();
    return left > 0 ? this.wait(left) : this.go('renewing');
  }

  @State({ deadline: hours(1), onMissed: 'late' })
  async renewing(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.end();
    if (!isExpired(vm)) return this.go('paid');
    // Paid before its owner wished otherwise.
    if (!vm.auto_renew) return this.go((await this.renewals.finish(vm)) ? 'paid' : 'expiring');
    try {
      await this.renewals.renew(vm, vm.paid_until!, null);
      return this.go('paid');
    } catch (error) {
      if (error instanceof ApiError && error.status === 402) return this.go('expiring');
      throw error;
    }
  }

  /** The hour is over; this process may have been away for it, and not billing. */
  @State()
  async late(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.end();
    if (!isExpired(vm)) return this.go('paid');
    const paid = await this.renewals.finish(vm).catch(() => null);
    if (paid !== null) return this.go(paid ? 'paid' : 'expiring');
    return this.go('unpaid', async (tx) => {
      await tx.query('select 1 as held from vm where id = $1::uuid for update', [vm.id]);
      await this.renewals.doubt(tx, vm);
      await stopUnpaid(tx, vm);
    });
  }

  /** What is not paid is stopped; its disk and addresses stay. */
  @State()
  expiring(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.end();
    if (!isExpired(vm)) return this.go('paid');
    return this.go('unpaid', (tx) => stopUnpaid(tx, vm));
  }

  @State()
  async unpaid(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.end();
    if (!isExpired(vm)) return this.go('paid');
    // Its owner may pay meanwhile: then the next look finds that.
    return (await this.renewals.finish(vm, true)) ? this.go('paid') : this.wait();
  }
}

/** Stops the machine, unless it was renewed meanwhile. */
async function stopUnpaid(tx: Sql, { id, paid_until }: VmRow): Promise<void> {
  // The database's clock is not asked: one that is behind would let it run on for nothing.
  await tx.query(
    `update vm set power = 'stopped', generation = generation + 1
     where id = $1::uuid and power = 'running' and deleted_at is null and paid_until = $2::timestamptz`,
    [id, paid_until],
  );
  await wake(tx, 'vm', id);
}

/** The paid time of a machine that was made is over. */
export const isExpired = ({
  provisioned_at,
  paid_until,
}: Pick<VmRow, 'provisioned_at' | 'paid_until'>): boolean =>
  provisioned_at !== null && paid_until !== null && paid_until.getTime() <= Date.now();
