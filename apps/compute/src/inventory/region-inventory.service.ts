import { Injectable } from '@nestjs/common';
import type {
  AgentIdentity,
  InventoryPart,
  InventoryWanted,
  RegionInventory,
  RegionThing,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { Changes, Epochs, notFound, pathId } from '@nebo/service-kit';
import type { Topic } from '../shared/topics.js';

const pageSize = 5_000;

/** What regions' hosts really have: asked of their agents, for audits (libs/contracts/src/internal/inventory.ts). */
@Injectable()
export class RegionInventories {
  constructor(
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly epochs: Epochs,
  ) {}

  /**
   * Asks a region's agent.
   * @returns the number under which it answers
   * @throws ApiError 404
   */
  async ask(regionId: string): Promise<{ number: number }> {
    const id = pathId(regionId);
    const [asked] = await this.database.query<{ number: number }>(
      `with asked as (
         insert into region_inventory as i (region_id, asked) select id, 1 from region where id = $1::uuid
         on conflict (region_id) do update set asked = i.asked + 1 returning asked)
       select asked as number, changed('inventory:' || $1)::text as said from asked`,
      [id],
    );
    if (!asked) throw notFound();
    return { number: asked.number };
  }

  /**
   * A page of what the agent has answered.
   * @param after null for the first page
   */
  read(regionId: string, number: number, after: string | null): Promise<RegionInventory> {
    const id = pathId(regionId);
    const [kind, ...rest] = after?.split(':') ?? [];
    return this.database.transaction(async (tx) => {
      const [known] = await tx.query<{ answered: number }>(
        'select answered from region_inventory where region_id = $1::uuid',
        [id],
      );
      if (!known || known.answered !== number) return { answered: false, things: [], next: null };
      const things = await tx.query<RegionThing>(
        `select kind, id, owner as of, state from region_thing where region_id = $1::uuid and number = $2::int
           and ($3::text is null or (kind, id) > ($3::text, $4::text)) order by kind, id limit $5::int`,
        [id, number, kind ?? null, rest.join(':'), pageSize],
      );
      const last = things.length === pageSize ? things[pageSize - 1] : undefined;
      return { answered: true, things, next: last ? `${last.kind}:${last.id}` : null };
    });
  }

  /** Tells an agent whether somebody asks; waits while nobody does. @throws ApiError 409 `stale_epoch` */
  async wanted(agent: AgentIdentity, waitMs: number, gone: AbortSignal): Promise<InventoryWanted> {
    const ear = this.changes.listen(`inventory:${agent.region_id}`);
    const over = AbortSignal.any([gone, this.changes.stopping]);
    const end = Date.now() + waitMs;
    try {
      for (;;) {
        const number = await this.database.transaction(async (tx) => {
          await this.epochs.check(tx, agent);
          return unanswered(tx, agent.region_id);
        });
        const left = end - Date.now();
        if (number !== null || left <= 0 || over.aborted) return { number };
        await ear.next(left, over);
      }
    } finally {
      ear.close();
    }
  }

  /** Takes a part; what answers an older question is dropped, a repeat changes nothing. @throws ApiError 409 `stale_epoch` */
  async take(agent: AgentIdentity, { number, things, last }: InventoryPart): Promise<void> {
    await this.database.transaction(async (tx) => {
      await this.epochs.check(tx, agent);
      await tx.query('select 1 as held from region_inventory where region_id = $1::uuid for update', [
        agent.region_id,
      ]);
      if ((await unanswered(tx, agent.region_id)) !== number) return;
      await tx.query(
        `insert into region_thing (region_id, number, kind, id, owner, state)
         select $1::uuid, $2::int, t.kind, t.id, t.of, t.state
         from jsonb_to_recordset($3::jsonb) as t (kind text, id text, of text, state text) on conflict do nothing`,
        [agent.region_id, number, JSON.stringify(things)],
      );
      if (!last) return;
      await tx.query('delete from region_thing where region_id = $1::uuid and number < $2::int', [
        agent.region_id,
        number,
      ]);
      await tx.query('update region_inventory set answered = $2::int where region_id = $1::uuid', [
        agent.region_id,
        number,
      ]);
    });
  }
}

async function unanswered(tx: Sql, regionId: string): Promise<number | null> {
  const [row] = await tx.query<{ asked: number }>(
    'select asked from region_inventory where region_id = $1::uuid and asked > answered',
    [regionId],
  );
  return row?.asked ?? null;
}
