import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import type { V1VMUpdate } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, fieldError } from '@nebo/service-kit';
import { CatalogueService, type Plan } from '../catalogue/catalogue.service.js';
import { ofPeriod, Prices, type Quote, restOf } from '../catalogue/prices.js';
import { Capacity, noCapacity } from '../regions/capacity.service.js';
import { periodOf } from './vm-renewals.service.js';
import { VmMoney } from './vm-money.js';
import { readVm, type VmRow } from './vm.rows.js';

/** Plan and size of a machine. */
export interface Size {
  plan_id: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** A change of size that is priced, and its money held. */
export interface Resize {
  id: string;
  account_id: string;
  from: Size;
  to: Size;
  quote: Quote;
  paid_until: Date | null;
}

interface ResizeRow extends Size {
  id: string;
  account_id: string;
  vm_id: string;
  state: 'open' | 'paid' | 'done' | 'undone';
  amount: string;
  paid_until: Date | null;
}

/** What came of paying: made wanted, or why not. */
export type Paid = 'paid' | 'expired' | 'changed' | { lacking: string };

/**
 * Larger plans and disks: priced for the rest of the paid period, charged, and only then wanted of the region. One at a time;
 * `resize.lifecycle.ts` goes on where a process has died.
 */
@Injectable()
export class VmResizes {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly prices: Prices,
    private readonly money: VmMoney,
    private readonly capacity: Capacity,
  ) {}

  /**
   * Checks and prices a change and holds its money.
   * @returns null when nothing changes
   * @throws ApiError 404 naming the plan's field, 409 `vm_ephemeral`, `vm_deleting`, `vm_not_ready`, `vm_changing`, 422 for less
   *   than there is or more than the plan allows, 402, 503
   */
  async prepare(vm: VmRow, body: V1VMUpdate): Promise<Resize | null> {
    const now = await this.catalogue.plan(vm.plan_id);
    const next = body.vm_plan_id === undefined ? now : await this.catalogue.plan(body.vm_plan_id);
    const to = sizeOf(vm, now, next, body.disk_size_gb);
    if (to.plan_id === vm.plan_id && to.disk_gb === vm.disk_gb) return null;
    checkChangeable(vm);
    const [before, after] = await Promise.all([
      this.prices.month({ plan: now, disk_gb: vm.disk_gb, backup_count: vm.backup_count }),
      this.prices.month({ plan: next, disk_gb: to.disk_gb, backup_count: vm.backup_count }),
    ]);
    const resize: Resize = {
      id: randomUUID(),
      account_id: vm.account_id,
      from: { plan_id: vm.plan_id, vcpu: vm.vcpu, memory_mb: vm.memory_mb, disk_gb: vm.disk_gb },
      to,
      quote: { amount: restOfPeriod(vm, after.amount - before.amount), prices: after.prices },
      paid_until: vm.paid_until,
    };
    if (resize.quote.amount > 0n)
      await this.money.reserve(resize, resize.quote, `larger machine ${vm.hostname}, plan ${next.name}`);
    return resize;
  }

  /** The change comes to nothing before it was begun. Lost, the hold expires in a minute. */
  async letGo(resize: Resize): Promise<void> {
    await this.money.letGo(resize).catch(() => undefined);
  }

  /**
   * Notes a change, in the transaction that holds its machine.
   * @throws ApiError 409 `vm_changing` when the machine or its period is not what it was priced for, or is being changed; 503
   *   `no_capacity`
   */
  async begin(tx: Sql, vm: VmRow, resize: Resize): Promise<void> {
    const { id, account_id, from, to, quote, paid_until } = resize;
    checkChangeable(vm);
    const [busy] = await tx.query(
      `select 1 as busy from vm_renewal r join vm v on v.id = r.vm_id and v.paid_until = r.after
         where r.vm_id = $1::uuid and r.state = 'open'
       union all select 1 from vm_resize where vm_id = $1::uuid and state in ('open', 'paid')`,
      [vm.id],
    );
    const same =
      vm.plan_id === from.plan_id &&
      vm.disk_gb === from.disk_gb &&
      vm.paid_until?.getTime() === paid_until?.getTime();
    if (busy || !same) throw changing();
    const lacking = await this.capacity.lacking(tx, vm.region_id, growth(from, to), false);
    if (lacking !== null) throw noCapacity(lacking);
    await tx.query(
      `insert into vm_resize (id, account_id, vm_id, amount, paid_until, from_plan_id, from_vcpu, from_memory_mb, from_disk_gb,
         plan_id, vcpu, memory_mb, disk_gb)
       values ($1::uuid, $2::uuid, $3::uuid, $4::numeric, $5::timestamptz, $6::uuid, $7::int, $8::int, $9::int, $10::uuid,
         $11::int, $12::int, $13::int)`,
      [
        id,
        account_id,
        vm.id,
        quote.amount.toString(),
        paid_until,
        from.plan_id,
        from.vcpu,
        from.memory_mb,
        from.disk_gb,
        to.plan_id,
        to.vcpu,
        to.memory_mb,
        to.disk_gb,
      ],
    );
    await start(tx, 'vm_resize', id, 'paying');
  }

  /**
   * Charges a change that was noted and makes it wanted; safe to repeat, also at once. What cannot be made wanted is `undone`
   * and paid back by its life.
   * @throws ApiError when billing is away: ask again
   */
  async pay(id: string): Promise<Paid> {
    const row = await this.database.transaction((tx) => this.read(tx, id));
    if (row === null) return 'changed';
    if (row.state === 'open' && BigInt(row.amount) > 0n) {
      const refused = await this.money.capture({ id, account_id: row.account_id });
      if (refused !== null) {
        await this.database.transaction((tx) => this.undo(tx, row));
        return 'expired';
      }
    }
    return this.database.transaction(async (tx) => {
      const [held] = await tx.query('select 1 as held from vm where id = $1::uuid for update', [row.vm_id]);
      const vm = held ? await readVm(tx, row.vm_id) : null;
      // Locked too: its life may be giving the money back at this moment.
      const fresh = await this.read(tx, id, 'for update');
      if (!vm || !fresh) return 'changed';
      if (fresh.state !== 'open') return fresh.state === 'undone' ? 'changed' : 'paid';
      const refusal = await this.refusal(tx, vm, fresh);
      if (refusal !== null) {
        await this.undo(tx, fresh);
        return refusal;
      }
      await tx.query(
        `with sized as (
           update vm set plan_id = $2::uuid, vcpu = $3::int, memory_mb = $4::int, disk_gb = $5::int,
             generation = generation + 1, updated_at = now() where id = $1::uuid returning generation)
         update vm_resize r set state = 'paid', generation = sized.generation from sized where r.id = $6::uuid`,
        [vm.id, fresh.plan_id, fresh.vcpu, fresh.memory_mb, fresh.disk_gb, id],
      );
      await wake(tx, 'vm_resize', id);
      await wake(tx, 'vm', vm.id);
      return 'paid';
    });
  }

  private async refusal(tx: Sql, vm: VmRow, to: ResizeRow): Promise<Exclude<Paid, 'paid'> | null> {
    if (vm.deleted_at !== null || vm.paid_until?.getTime() !== to.paid_until?.getTime()) return 'changed';
    const lacking = await this.capacity.lacking(tx, vm.region_id, growth(vm, to), false);
    return lacking === null ? null : { lacking };
  }

  private async undo(tx: Sql, { id }: ResizeRow): Promise<void> {
    await tx.query("update vm_resize set state = 'undone' where id = $1::uuid and state = 'open'", [id]);
    await wake(tx, 'vm_resize', id);
  }

  private async read(tx: Sql, id: string, lock: '' | 'for update' = ''): Promise<ResizeRow | null> {
    const [row] = await tx.query<ResizeRow>(
      `select id, account_id, vm_id, state, amount::text as amount, paid_until, plan_id, vcpu, memory_mb, disk_gb
       from vm_resize where id = $1::uuid ${lock}`,
      [id],
    );
    return row ?? null;
  }

  /** The machine ends: what the region has not made is paid back. @throws ApiError when billing is away */
  async settle(vm: VmRow): Promise<void> {
    const rows = await this.database.transaction((tx) =>
      tx.query<{ id: string }>(
        "select id from vm_resize where vm_id = $1::uuid and state <> 'done' and amount > 0",
        [vm.id],
      ),
    );
    for (const { id } of rows)
      await this.money.giveBack({ id, account_id: vm.account_id }, 'the machine was deleted');
  }
}

const changing = () =>
  conflict('vm_changing', 'the machine is being changed or renewed; read it again and repeat');

function checkChangeable(vm: VmRow): void {
  if (vm.ephemeral) throw conflict('vm_ephemeral', 'an ephemeral machine cannot be resized');
  if (vm.deleted_at) throw conflict('vm_deleting', 'the machine is being deleted');
  if (vm.provisioned_at === null) throw conflict('vm_not_ready', 'the machine has not been made');
  if (vm.restoring) throw conflict('vm_restoring', 'a backup is being restored into the machine');
}

/** @throws ApiError 422 saying what is allowed */
function sizeOf(vm: VmRow, now: Plan, next: Plan, disk: number | undefined): Size {
  const changes = next.id !== now.id;
  const least = { vcpu: Math.max(vm.vcpu, now.vcpu), memory_mb: Math.max(vm.memory_mb, now.memory_mb) };
  if (changes && (next.vcpu < least.vcpu || next.memory_mb < least.memory_mb))
    throw fieldError(
      'vm_plan_id',
      `must not be smaller than ${now.name}: at least ${least.vcpu} processors and ${least.memory_mb} MB`,
    );
  if (vm.disk_gb > next.max_disk_gb)
    throw fieldError('vm_plan_id', `the plan ${next.name} has disks up to ${next.max_disk_gb} GB`);
  const disk_gb = disk ?? Math.max(vm.disk_gb, changes ? next.disk_gb : 0);
  if (disk_gb < vm.disk_gb || disk_gb > next.max_disk_gb)
    throw fieldError(
      'disk_size_gb',
      `must be ${vm.disk_gb} to ${next.max_disk_gb} GB with the plan ${next.name}; a disk does not shrink`,
    );
  return changes
    ? { plan_id: next.id, vcpu: next.vcpu, memory_mb: next.memory_mb, disk_gb }
    : { plan_id: now.id, vcpu: vm.vcpu, memory_mb: vm.memory_mb, disk_gb };
}

/** What a difference a month costs for the rest of the paid period: its share of the time that is left. */
function restOfPeriod(vm: VmRow, month: bigint): bigint {
  if (month <= 0n || vm.paid_from === null || vm.paid_until === null) return 0n;
  return restOf(ofPeriod(month, periodOf(vm), vm.paid_from), vm.paid_from, vm.paid_until, new Date());
}

const growth = (from: Omit<Size, 'plan_id'>, to: Omit<Size, 'plan_id'>) => ({
  vcpu: to.vcpu - from.vcpu,
  memory_mb: to.memory_mb - from.memory_mb,
  disk_gb: to.disk_gb - from.disk_gb,
});
