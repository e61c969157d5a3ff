import { Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { VmEvent } from '@nebo/contracts';
import { type Change, hours, Lifecycle, minutes, type Outcome, start, State, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { periodEnd } from '../catalogue/prices.js';
import { says } from '../events.js';
import { Capacity } from '../regions/capacity.service.js';
import { isSettled } from './vm.mapper.js';
import { VmMoney } from './vm-money.js';
import { VmPorts } from './vm-ports.js';
import { periodOf, VmRenewals } from './vm-renewals.service.js';
import { VmResizes } from './vm-resizes.service.js';
import { endSpan } from './vm-span.rows.js';
import { readVm, type VmRow } from './vm.rows.js';

/**
 * Life of a machine: ordered (→ queued) → attaching → provisioning → living ⇄ changing or restoring (⇄ overdue), and from anywhere removing →
 * releasing → settling → end. What cannot be made is paid back (refunding) and stays as `error` until it is deleted.
 * Every step may run again after a kill: each call names the machine or its interface.
 */
@Injectable()
export class VmLifecycle extends Lifecycle<VmRow> {
  override readonly kind = 'vm';
  override readonly saysAtOnce = true;

  constructor(
    private readonly capacity: Capacity,
    private readonly money: VmMoney,
    private readonly ports: VmPorts,
    private readonly renewals: VmRenewals,
    private readonly resizes: VmResizes,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<VmRow | null> {
    return readVm(tx, id);
  }

  /** The phase stands in the machine's own row; the reason of an end that is bad stays. */
  override async changed(
    tx: Sql,
    id: string,
    { to, reason }: Change,
    { placed, admitted, period }: Written = {},
  ): Promise<void> {
    if (to === null) return;
    // One statement for all of it: each rewrites the row.
    await tx.query(
      `update vm set phase = $2, updated_at = now(),
         reason = coalesce($3, case when $2 in ('refunding', 'error') then reason end),
         queued_at = case when $2 = 'queued' then coalesce(queued_at, clock_timestamp()) end,
         placed = placed or ($4::boolean and deleted_at is null),
         admitted = admitted or ($5::boolean and deleted_at is null),
         provisioned_at = case when $6::boolean then now() else provisioned_at end,
         paid_from = coalesce($7::timestamptz, paid_from), paid_until = coalesce($8::timestamptz, paid_until)
       where id = $1::uuid`,
      [
        id,
        to,
        reason,
        placed ?? false,
        admitted ?? false,
        period !== undefined,
        period?.from ?? null,
        period?.until ?? null,
      ],
    );
  }

  /**
   * The price is held; it is charged before anything is made (interfaces.md, 5). What is billed by the second has its span
   * and its place since the order.
   */
  @State({ deadline: minutes(5), onMissed: 'refunding' })
  async ordered(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.go('removing');
    if (!vm.ephemeral) {
      const refused = await this.money.capture(vm, vm.amount);
      if (refused !== null) return this.fail(refused, 'refunding');
    }
    if (!vm.placed) return this.within((tx) => this.place(tx, vm));
    // With its place it can be attached at once; where that takes longer it has a state and a time of its own.
    return this.attaching(vm).catch(() => this.go('attaching'));
  }

  private async place(tx: Sql, vm: VmRow): Promise<Outcome> {
    // Before the region's row, as everywhere: in another order two of them could wait for each other.
    await tx.query('select 1 as held from vm where id = $1::uuid for update', [vm.id]);
    const lacking = await this.capacity.lacking(tx, vm.region_id, vm, true);
    if (lacking === null) return this.go('attaching', writes({ placed: true }));
    const waits = `The region has no room for it yet: ${lacking}. It is made as soon as there is room, in the order of the orders; its paid period begins then. The money goes back after 24 hours, or when it is deleted.`;
    return this.fail(waits, 'queued');
  }

  /** Paid, and without room: the region's queue gives it its place (`queue.lifecycle.ts`). */
  @State({ deadline: hours(24), onMissed: 'refunding' })
  queued(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    return vm.placed ? this.go('attaching') : this.wait(Infinity, 'the region had no room for it');
  }

  @State({ deadline: minutes(5), onMissed: 'refunding' })
  async attaching(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.go('removing');
    // What was held for its floating IPs is free again before they are ordered. Of a period the charge has done that.
    if (vm.ephemeral && vm.interfaces.some(({ fip_id }) => fip_id !== null)) await this.money.letGo(vm);
    const claimed: [id: string, vpcId: string, mac: string, address: string][] = [];
    for (const wanted of vm.interfaces) {
      const port = await this.ports.claim(vm, wanted);
      if (typeof port === 'string') return this.fail(`The network refused an address: ${port}.`, 'refunding');
      claimed.push([port.id, port.vpc_id, port.mac, port.address]);
      const refused = await this.ports.orderFloatingIp(vm, wanted);
      if (refused !== null)
        return this.fail(`Its floating IP could not be ordered: ${refused}.`, 'refunding');
    }
    const floating = await this.ports.floatingIps(vm);
    return this.rest(
      'provisioning',
      async (tx) => {
        await Promise.all(
          claimed.map(([id, vpcId, mac, address]) =>
            tx.query(
              'update vm_interface set vpc_id = $2::uuid, mac = $3, address = $4, fip = $5::jsonb where id = $1::uuid',
              [id, vpcId, mac, address, JSON.stringify(floating.get(id) ?? null)],
            ),
          ),
        );
        return { admitted: true } satisfies Written;
      },
      'no region has begun it',
    );
  }

  @State({ deadline: minutes(20), onMissed: 'refunding' })
  provisioning(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    const seen = vm.observed_generation === vm.generation ? vm.observed_state : null;
    if (seen === 'failed')
      return this.fail(vm.observed_reason ?? 'The region could not make the machine.', 'refunding');
    if (seen !== 'running' || (vm.restoring && !isRestored(vm)))
      return this.wait(
        Infinity,
        vm.observed_state ? 'the region has not started it' : 'no region has begun it',
      );
    return this.rest('living', async (tx) => {
      if (vm.restoring) await endRestore(tx, vm);
      const said = say(tx, says.vmProvisioned(eventOf(vm), { account: vm.account_id }));
      // The paid time begins now: nobody pays for the time that it took to make the machine.
      const from = new Date();
      const until = vm.ephemeral ? null : periodEnd(from, periodOf(vm));
      await Promise.all([said, until && start(tx, 'vm_period', vm.id, 'paid', until)]);
      if (until === null) return { period: {} } satisfies Written;
      return { period: { from, until } } satisfies Written;
    });
  }

  @State()
  living(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    if (isSettled(vm)) return this.wait();
    return this.go(vm.restoring ? 'restoring' : 'changing');
  }

  /** Started, stopped or restarted. */
  @State({ deadline: minutes(5), onMissed: 'overdue' })
  changing(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    if (vm.restoring && !isSettled(vm)) return this.go('restoring');
    return isSettled(vm) ? this.go('living') : this.wait(Infinity, 'the region has not reported it');
  }

  /** Its disk is made of a backup; then it is started, if that is wanted. */
  @State({ deadline: hours(2), onMissed: 'overdue' })
  restoring(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    if (isRestored(vm)) return this.go('changing', (tx) => endRestore(tx, vm));
    if (!vm.restoring || isSettled(vm)) return this.go('changing');
    return this.wait(Infinity, 'the region has not restored its disk');
  }

  /** The region is late; what it reports counts whenever it comes. */
  @State()
  overdue(vm: VmRow): Outcome {
    if (vm.deleted_at) return this.go('removing');
    if (isRestored(vm)) return this.go('restoring');
    return isSettled(vm) ? this.go('living') : this.wait();
  }

  /** It could not be made: its money goes back, and the region drops what it has of it. */
  @State()
  async refunding(vm: VmRow): Promise<Outcome> {
    if (!vm.ephemeral) await this.money.giveBack(vm, 'the machine could not be made');
    return this.go('error', async (tx) => {
      await tx.query(
        `update vm set refunded = true, paid_until = null, paid_from = null, gone = gone or admitted,
           generation = generation + (admitted and not gone)::int where id = $1::uuid`,
        [vm.id],
      );
      await endSpan(tx, vm.id, true);
    });
  }

  /** Stays to be read until it is deleted; its place, addresses and floating IPs are given back once nothing can use them. */
  @State()
  async error(vm: VmRow): Promise<Outcome> {
    if (vm.deleted_at) return this.go('removing');
    if (!isRemoved(vm) || vm.cleared) return this.wait();
    for (const port of vm.interfaces) await this.ports.release(vm, port);
    return this.go('error', async (tx) => {
      await tx.query('update vm set placed = false, cleared = true where id = $1::uuid', [vm.id]);
      await tx.query(
        'update vm_interface set vpc_id = null, mac = null, address = null, fip = null where vm_id = $1::uuid',
        [vm.id],
      );
    });
  }

  /** No address is freed while the region may still run the machine. */
  @State({ deadline: minutes(20), onMissed: 'remains' })
  removing(vm: VmRow): Outcome {
    return isRemoved(vm)
      ? this.go('releasing', (tx) => leavePlace(tx, vm))
      : this.wait(Infinity, 'the region has not confirmed the removal');
  }

  /** The region is late; the machine keeps its addresses until it answers. */
  @State()
  remains(vm: VmRow): Outcome {
    return isRemoved(vm) ? this.go('releasing', (tx) => leavePlace(tx, vm)) : this.wait();
  }

  @State()
  async releasing(vm: VmRow): Promise<Outcome> {
    for (const port of vm.interfaces) await this.ports.release(vm, port);
    return this.go('settling');
  }

  /** A machine that never ran costs nothing. */
  @State()
  async settling(vm: VmRow): Promise<Outcome> {
    if (vm.provisioned_at === null && !vm.refunded && !vm.ephemeral)
      await this.money.giveBack(vm, 'the machine was deleted before it ran');
    await this.renewals.settle(vm);
    await this.resizes.settle(vm);
    return this.end(async (tx) => {
      await tx.query('delete from vm where id = $1::uuid', [vm.id]);
      await wake(tx, 'vm_period', vm.id);
      await say(tx, says.vmGone(eventOf(vm), { account: vm.account_id }));
    });
  }
}

/** What a change of state writes into the machine's row with it. */
interface Written {
  placed?: boolean;
  admitted?: boolean;
  /** It has run for the first time; the period that is paid, unless it is billed by the second. */
  period?: { from?: Date; until?: Date };
}

/** An effect that is nothing but that. */
const writes = (written: Written) => () => Promise.resolve(written);

/** The region has made its disk of the backup. */
const isRestored = (vm: VmRow): boolean =>
  vm.restoring &&
  vm.observed_generation === vm.generation &&
  (vm.observed_facts?.restored ?? 0) >= vm.restore_number;

/** The bytes that it was restored from are not needed any more. */
const endRestore = (tx: Sql, { id, restore_number }: VmRow) =>
  tx.query(
    `update vm set restore_sha256 = null, restore_bytes = null
     where id = $1::uuid and restore_number = $2::int and restore_sha256 is not null`,
    [id, restore_number],
  );

/** No agent can have anything of it: none was ever told, or one has confirmed. */
const isRemoved = (vm: VmRow): boolean =>
  !vm.handed || (vm.observed_state === 'gone' && (vm.observed_generation ?? 0) >= vm.generation);

/** Its place in the region is free for others. */
const leavePlace = (tx: Sql, { id }: VmRow) =>
  tx.query('update vm set placed = false where id = $1::uuid', [id]);

/** A machine as events name it. */
export const eventOf = (vm: { id: string; project_id: string; region_id: string }): VmEvent => ({
  vm_id: vm.id,
  project_id: vm.project_id,
  region_id: vm.region_id,
});
