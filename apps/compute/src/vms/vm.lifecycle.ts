import { Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { VmEvent } from '@nebo/contracts';
import { type Change, Lifecycle, minutes, type Outcome, start, State, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { periodEnd } from '../catalogue/prices.js';
import { says } from '../events.js';
import { isSettled } from './vm.mapper.js';
import { VmMoney } from './vm-money.js';
import { VmPorts } from './vm-ports.js';
import { VmRenewals } from './vm-renewals.service.js';
import { readVm, type VmRow } from './vm.rows.js';

/**
 * Life of a machine: ordered → attaching → provisioning → living ⇄ changing (⇄ overdue), and from anywhere removing →
 * releasing → settling → end. What cannot be made is paid back (refunding) and stays as `error` until it is deleted.
 * Every step may run again after a kill: each call names the machine or its interface.
 */
@Injectable()
export class VmLifecycle extends Lifecycle<VmRow> {
  override readonly kind = 'vm';

  constructor(
    private readonly money: VmMoney,
    private readonly ports: VmPorts,
    private readonly renewals: VmRenewals,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<VmRow | null> {
    return readVm(tx, id);
  }

  /** The phase stands in the machine's own row; the reason of an end that is bad stays. */
  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    if (to === null) return;
    await tx.query(
      `update vm set phase = $2, updated_at = now(),
         reason = coalesce($3, case when $2 in ('refunding', 'error') then reason end) where id = $1::uuid`,
      [id, to, reason],
    );
  }

  /** The price is held; it is charged before anything is made (interfaces.md, 5). */
  @State({ deadline: minutes(5), onMissed: 'refunding' })
  async ordered(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.go('removing');
    const refused = await this.money.capture(vm);
    if (refused !== null) return this.fail(refused, 'refunding');
    const period = vm.period_days !== null ? { days: vm.period_days } : { months: vm.period_months ?? 1 };
    return this.go('attaching', (tx) =>
      tx.query('update vm set paid_until = $2::timestamptz where id = $1::uuid', [
        vm.id,
        periodEnd(vm.created_at, period),
      ]),
    );
  }

  @State({ deadline: minutes(5), onMissed: 'refunding' })
  async attaching(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.go('removing');
    const claimed: [id: string, vpcId: string, mac: string, address: string][] = [];
    for (const wanted of vm.interfaces) {
      const port = await this.ports.claim(vm, wanted);
      if (typeof port === 'string') return this.fail(`The network refused an address: ${port}.`, 'refunding');
      claimed.push([port.id, port.vpc_id, port.mac, port.address]);
    }
    return this.go('provisioning', async (tx) => {
      for (const [id, vpcId, mac, address] of claimed)
        await tx.query(
          'update vm_interface set vpc_id = $2::uuid, mac = $3, address = $4 where id = $1::uuid',
          [id, vpcId, mac, address],
        );
      await tx.query('update vm set admitted = true where id = $1::uuid and deleted_at is null', [vm.id]);
    });
  }

  @State({ deadline: minutes(20), onMissed: 'refunding' })
  provisioning(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    const seen = vm.observed_generation === vm.generation ? vm.observed_state : null;
    if (seen === 'failed')
      return this.fail(vm.observed_reason ?? 'The region could not make the machine.', 'refunding');
    if (seen !== 'running')
      return this.wait(
        Infinity,
        vm.observed_state ? 'the region has not started it' : 'no region has begun it',
      );
    return this.go('living', async (tx) => {
      await tx.query('update vm set provisioned_at = now() where id = $1::uuid', [vm.id]);
      await start(tx, 'vm_period', vm.id, 'paid');
      await say(tx, says.vmProvisioned(eventOf(vm), { account: vm.account_id }));
    });
  }

  @State()
  living(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    return isSettled(vm) ? this.wait() : this.go('changing');
  }

  /** Started, stopped or restarted. */
  @State({ deadline: minutes(5), onMissed: 'overdue' })
  changing(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    return isSettled(vm) ? this.go('living') : this.wait(Infinity, 'the region has not reported it');
  }

  /** The region is late; what it reports counts whenever it comes. */
  @State()
  overdue(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    return isSettled(vm) ? this.go('living') : this.wait();
  }

  /** It could not be made: its money goes back, and the region drops what it has of it. */
  @State()
  async refunding(vm: VmRow): Promise<Outcome> {
    await this.money.giveBack(vm, 'the machine could not be made');
    return this.go('error', (tx) =>
      tx.query(
        `update vm set refunded = true, paid_until = null, gone = gone or admitted,
           generation = generation + (admitted and not gone)::int where id = $1::uuid`,
        [vm.id],
      ),
    );
  }

  @State()
  error(vm: VmRow): Outcome {
    return vm.deleted_at ? this.go('removing') : this.wait();
  }

  /** No address is freed while the region may still run the machine. */
  @State({ deadline: minutes(20), onMissed: 'remains' })
  removing(vm: VmRow): Outcome {
    return isRemoved(vm)
      ? this.go('releasing')
      : this.wait(Infinity, 'the region has not confirmed the removal');
  }

  /** The region is late; the machine keeps its addresses until it answers. */
  @State()
  remains(vm: VmRow): Outcome {
    return isRemoved(vm) ? this.go('releasing') : this.wait();
  }

  @State()
  async releasing(vm: VmRow): Promise<Outcome> {
    for (const port of vm.interfaces) await this.ports.release(vm, port);
    return this.go('settling');
  }

  /** A machine that never ran costs nothing. */
  @State()
  async settling(vm: VmRow): Promise<Outcome> {
    if (vm.provisioned_at === null && !vm.refunded)
      await this.money.giveBack(vm, 'the machine was deleted before it ran');
    await this.renewals.settle(vm);
    return this.end(async (tx) => {
      await tx.query('delete from vm where id = $1::uuid', [vm.id]);
      await wake(tx, 'vm_period', vm.id);
      await say(tx, says.vmGone(eventOf(vm), { account: vm.account_id }));
    });
  }
}

/** No agent can have anything of it: none was ever told, or one has confirmed. */
const isRemoved = (vm: VmRow): boolean =>
  !vm.handed || (vm.observed_state === 'gone' && (vm.observed_generation ?? 0) >= vm.generation);

/** A machine as events name it. */
export const eventOf = (vm: { id: string; project_id: string; region_id: string }): VmEvent => ({
  vm_id: vm.id,
  project_id: vm.project_id,
  region_id: vm.region_id,
});
