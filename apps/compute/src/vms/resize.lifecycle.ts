import { Injectable } from '@nestjs/common';
import type { MachineFacts, MachineState } from '@nebo/contracts';
import { Lifecycle, minutes, type Outcome, State, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { VmMoney } from './vm-money.js';
import { VmResizes } from './vm-resizes.service.js';

/** A change of size, with what the region says of its machine. */
interface Resizing {
  id: string;
  account_id: string;
  vm_id: string;
  state: 'open' | 'paid' | 'done' | 'undone';
  amount: string;
  generation: number | null;
  from_disk_gb: number;
  disk_gb: number;
  deleted_at: Date | null;
  observed_generation: number | null;
  observed_state: MachineState | null;
  observed_facts: Partial<MachineFacts> | null;
}

/**
 * A change of size: paying → applying (→ overdue) → end, or → refunding → end when it could not be paid in time, when the
 * region cannot make it, or when the machine is deleted before that. Processors and memory count from the next start, so
 * what the region must have made is the disk.
 */
@Injectable()
export class ResizeLifecycle extends Lifecycle<Resizing> {
  override readonly kind = 'vm_resize';

  constructor(
    private readonly database: Database,
    private readonly resizes: VmResizes,
    private readonly money: VmMoney,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<Resizing | null> {
    const [row] = await tx.query<Resizing>(
      `select r.id, r.account_id, r.vm_id, r.state, r.amount::text as amount, r.generation, r.from_disk_gb, r.disk_gb, v.deleted_at,
         v.observed_generation, v.observed_state, v.observed_facts
       from vm_resize r join vm v on v.id = r.vm_id where r.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  @State({ deadline: minutes(5), onMissed: 'refunding' })
  async paying({ id }: Resizing): Promise<Outcome> {
    return this.go((await this.resizes.pay(id)) === 'paid' ? 'applying' : 'refunding');
  }

  @State({ deadline: minutes(10), onMissed: 'overdue' })
  applying(resize: Resizing): Outcome {
    return this.look(resize);
  }

  /** The region is late; what it reports counts whenever it comes. */
  @State()
  overdue(resize: Resizing): Outcome {
    return this.look(resize);
  }

  private look(resize: Resizing): Outcome {
    if (resize.deleted_at !== null) return this.go('refunding');
    switch (verdictOf(resize)) {
      case 'made':
        return this.end((tx) =>
          tx.query("update vm_resize set state = 'done' where id = $1::uuid", [resize.id]),
        );
      case 'refused':
        return this.go('refunding', (tx) => this.revert(tx, resize));
      case null:
        return this.wait(Infinity, 'the region has not reported the new size');
    }
  }

  /** The machine shall be what it was; its region is asked again. */
  private async revert(tx: Sql, { id, vm_id }: Resizing): Promise<void> {
    await tx.query('select 1 as held from vm where id = $1::uuid for update', [vm_id]);
    await tx.query(
      `update vm v set plan_id = r.from_plan_id, vcpu = r.from_vcpu, memory_mb = r.from_memory_mb, disk_gb = r.from_disk_gb,
         generation = v.generation + 1, updated_at = now()
       from vm_resize r where r.id = $1::uuid and r.state = 'paid' and v.id = r.vm_id and v.deleted_at is null`,
      [id],
    );
    await tx.query("update vm_resize set state = 'undone' where id = $1::uuid", [id]);
    await wake(tx, 'vm', vm_id);
  }

  @State()
  async refunding(resize: Resizing): Promise<Outcome> {
    // Before the money moves: what is undone can be made wanted by nobody any more.
    const state = await this.database.transaction(async (tx) => {
      await tx.query(
        `update vm_resize r set state = 'undone' from vm v
         where r.id = $1::uuid and v.id = r.vm_id and (r.state = 'open' or (r.state = 'paid' and v.deleted_at is not null))`,
        [resize.id],
      );
      const [row] = await tx.query<Pick<Resizing, 'state'>>(
        'select state from vm_resize where id = $1::uuid',
        [resize.id],
      );
      return row?.state;
    });
    // Its payment came through at the last moment.
    if (state === 'paid') return this.go('applying');
    if (BigInt(resize.amount) > 0n) await this.money.giveBack(resize, 'the machine was not made larger');
    return this.end();
  }
}

/** What the region has come to, as soon as it knows of the size; null before. */
function verdictOf(resize: Resizing): 'made' | 'refused' | null {
  if (resize.generation === null || (resize.observed_generation ?? 0) < resize.generation) return null;
  const disk = resize.observed_facts?.disk_gb ?? 0;
  if (resize.observed_state === 'failed') {
    // A disk that has grown does not shrink again; without one, a later failure is that of a later wish.
    const made =
      resize.from_disk_gb < resize.disk_gb
        ? disk >= resize.disk_gb
        : resize.observed_generation !== resize.generation;
    return made ? 'made' : 'refused';
  }
  // A region that does not say how large a disk is has made what it says nothing against.
  const grown = disk === 0 || disk >= resize.disk_gb;
  return grown && ['running', 'stopped'].includes(resize.observed_state ?? '') ? 'made' : null;
}
