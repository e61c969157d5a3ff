import { Injectable } from '@nestjs/common';
import { Lifecycle, minutes, type Outcome, State, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Capacity } from './capacity.service.js';

interface Waiting {
  id: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** What came of a look at the head of the queue. */
type Look = 'placed' | 'full' | 'busy' | 'empty';

/**
 * The queue of a region, as long as the region. Who has waited longest is next, also when a smaller one would fit: nobody is
 * overtaken for ever. What is larger than the whole region waits for a larger one and holds up nobody. Woken by the database when room appears or the queue changes (`vm_use` of the migrations).
 */
@Injectable()
export class RegionQueueLifecycle extends Lifecycle<{ id: string }> {
  override readonly kind = 'region_queue';

  constructor(
    private readonly database: Database,
    private readonly capacity: Capacity,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<{ id: string } | null> {
    const [region] = await tx.query<{ id: string }>('select id from region where id = $1::uuid', [id]);
    return region ?? null;
  }

  @State()
  async watching({ id }: { id: string }): Promise<Outcome> {
    let look: Look;
    do look = await this.database.transaction((tx) => this.admit(tx, id));
    while (look === 'placed');
    return this.wait(look === 'busy' ? 200 : minutes(1));
  }

  /** Gives the head of the queue its place when there is room. */
  private async admit(tx: Sql, region: string): Promise<Look> {
    // What it can hold stays the same until the end: otherwise a smaller one could pass one that has just become possible.
    await tx.query('select 1 as held from region where id = $1::uuid for share', [region]);
    // Locks what is taken of it: until the end nobody takes room or joins the queue.
    await this.capacity.lacking(tx, region, { vcpu: 0, memory_mb: 0, disk_gb: 0 }, false);
    const [head] = await tx.query<Waiting>(
      `select v.id, v.vcpu, v.memory_mb, v.disk_gb from vm v join region r on r.id = v.region_id
       where v.region_id = $1::uuid and v.queued_at is not null and v.phase = 'queued' and v.deleted_at is null and not v.placed
         and region_holds(r, v.vcpu, v.memory_mb, v.disk_gb, $2::int)
       order by v.queued_at, v.id limit 1`,
      [region, this.capacity.overcommit],
    );
    if (!head) return 'empty';
    // Whoever changes it now wants the region's row next: waiting for one another would be a deadlock.
    const [mine] = await tx.query(
      `select 1 as mine from vm where id = $1::uuid and phase = 'queued' and deleted_at is null for update skip locked`,
      [head.id],
    );
    if (!mine) return 'busy';
    if ((await this.capacity.lacking(tx, region, head, false)) !== null) return 'full';
    await tx.query('update vm set placed = true where id = $1::uuid', [head.id]);
    await wake(tx, 'vm', head.id);
    return 'placed';
  }
}
