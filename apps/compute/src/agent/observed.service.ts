import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import type { ObservedBackup, ObservedMachine } from './messages.js';

/** So many at once come from an agent that starts, or one that was away. */
const fewItems = 20;

/**
 * What a region saw, written beside what is wanted of it. A message may be lost, doubled or late: an older generation or
 * an older time changes nothing, and `gone` is the last word. The lifecycle draws the conclusions.
 */
@Injectable()
export class ObservedService {
  constructor(
    private readonly database: Database,
    private readonly epochs: Epochs,
  ) {}

  /**
   * @returns how many observations changed something
   * @throws ApiError 409 `stale_epoch`
   */
  async take(agent: AgentIdentity, items: readonly (ObservedMachine | ObservedBackup)[]): Promise<number> {
    const known = items.length < fewItems ? new Set<string>() : await this.repeated(agent, items);
    let taken = known.size;
    // One transaction each: a batch must not hold many machines at once.
    for (const item of items) {
      if (known.has(item.id)) continue;
      taken += await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        return item.kind === 'vm' ? this.machine(tx, agent, item) : this.backup(tx, agent, item);
      });
    }
    if (items.length === 0) await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return taken;
  }

  /**
   * What an agent says of all its machines when it starts is mostly what it said before: that is noted in one statement, and
   * nobody is woken for it. Machines that somebody else is writing wait for their turn.
   * @returns the ids that are done with
   */
  private repeated(
    agent: AgentIdentity,
    items: readonly (ObservedMachine | ObservedBackup)[],
  ): Promise<Set<string>> {
    // What is said twice of one machine goes the long way: only one of the two may be a repeat.
    const times = new Map<string, number>();
    for (const { id } of items) times.set(id, (times.get(id) ?? 0) + 1);
    const said = items.filter(({ kind, id }) => kind === 'vm' && times.get(id) === 1);
    return this.database.transaction(async (tx) => {
      await this.epochs.check(tx, agent);
      const rows = await tx.query<{ id: string }>(
        `with same as (
           select v.id, s.at from vm v join jsonb_to_recordset($2::jsonb)
             as s (id uuid, generation int, state text, reason text, facts jsonb, at timestamptz) on s.id = v.id
           where v.region_id = $1::uuid and v.handed and not v.gone and s.generation = v.generation
             and v.observed_generation = s.generation and v.observed_state = s.state and v.observed_facts = s.facts
             and v.observed_reason is not distinct from s.reason and s.at > v.observed_at
           order by v.id for update of v skip locked)
         update vm v set observed_at = same.at, received_at = now() from same where v.id = same.id returning v.id`,
        [agent.region_id, JSON.stringify(said)],
      );
      return new Set(rows.map(({ id }) => id));
    });
  }

  private async machine(tx: Sql, { region_id }: AgentIdentity, item: ObservedMachine): Promise<number> {
    const rows = await tx.query<{ news: boolean }>(
      `with before as (
         select id, observed_generation, observed_state, observed_facts from vm
         where id = $1::uuid and region_id = $2::uuid for update)
       update vm v set observed_generation = $3::int, observed_state = $4, observed_reason = $5, observed_facts = $6::jsonb,
         observed_at = $7::timestamptz, received_at = now()
       from before b
       where v.id = b.id and v.handed and $3::int <= v.generation
         and (v.observed_generation is null or $3::int > v.observed_generation
           or ($3::int = v.observed_generation and not (v.gone and v.observed_state = 'gone')
             -- The agent's clock may be set back: a minute after the last word, any word is newer.
             and ($7::timestamptz > v.observed_at or v.received_at < now() - interval '1 minute')))
       returning (b.observed_generation, b.observed_state, b.observed_facts)
         is distinct from (v.observed_generation, v.observed_state, v.observed_facts) as news`,
      [item.id, region_id, item.generation, item.state, item.reason, JSON.stringify(item.facts), item.at],
    );
    // The full report after an outage says mostly what is known; it must not have every machine looked at again.
    if (rows[0]?.news) await wake(tx, 'vm', item.id);
    return rows.length;
  }

  /** `ready` and `failed` are final for their generation; there is no order of times to keep. */
  private async backup(tx: Sql, { region_id }: AgentIdentity, item: ObservedBackup): Promise<number> {
    const rows = await tx.query(
      `update vm_backup set observed_generation = $3::int, observed_state = $4, observed_reason = $5,
         observed_facts = $6::jsonb, observed_at = $7::timestamptz
       where id = $1::uuid and region_id = $2::uuid and handed and $3::int <= generation
         and (observed_generation is null or $3::int > observed_generation
           or ($3::int = observed_generation and observed_state = 'creating' and $4 <> 'creating'))
       returning 1 as taken`,
      [
        item.id,
        region_id,
        item.generation,
        item.state,
        item.reason,
        item.facts && JSON.stringify(item.facts),
        item.at,
      ],
    );
    if (rows.length > 0) await wake(tx, 'backup', item.id);
    return rows.length;
  }
}
