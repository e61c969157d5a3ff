import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity } from '@nebo/contracts';
import { wake, wakeAll } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import type { ObservedBackup, ObservedMachine } from './messages.js';

/** Machines in one transaction: it must not hold many at once for long. */
const atOnce = 100;

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
    // What is said twice of one machine goes one by one, in the order in which it was said.
    const times = new Map<string, number>();
    for (const { id } of items) times.set(id, (times.get(id) ?? 0) + 1);
    const machines = items.filter(
      (item) => item.kind === 'vm' && times.get(item.id) === 1,
    ) as ObservedMachine[];
    let taken = 0;
    const done = new Set<string>();
    for (let from = 0; from < machines.length; from += atOnce) {
      const batch = machines.slice(from, from + atOnce);
      const written = await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        return this.machines(tx, agent, batch, true);
      });
      for (const { id, taken: isTaken } of written) {
        done.add(id);
        taken += Number(isTaken);
      }
    }
    // What somebody else is writing now is waited for, one transaction each.
    for (const item of items) {
      if (done.has(item.id)) continue;
      taken += await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        if (item.kind === 'backup') return this.backup(tx, agent, item);
        return Number((await this.machines(tx, agent, [item], false))[0]?.taken ?? false);
      });
    }
    if (items.length === 0) await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return taken;
  }

  /**
   * @param skips leaves out machines that somebody else is writing
   * @returns the machines that were looked at, and whether the word was newer than what was known
   */
  private async machines(
    tx: Sql,
    { region_id }: AgentIdentity,
    said: readonly ObservedMachine[],
    skips: boolean,
  ): Promise<{ id: string; taken: boolean }[]> {
    const rows = await tx.query<{ id: string; news: boolean | null }>(
      `with said as materialized (select * from jsonb_to_recordset($2::jsonb)
           as s (id uuid, generation int, state text, reason text, facts jsonb, at timestamptz)),
       before as materialized (
         select v.id, v.observed_generation, v.observed_state, v.observed_facts from vm v
         where v.id in (select id from said) and v.region_id = $1::uuid
         order by v.id for update ${skips ? 'skip locked' : ''}),
       written as (
         update vm v set observed_generation = s.generation, observed_state = s.state, observed_reason = s.reason,
           observed_facts = s.facts, observed_at = s.at, received_at = now()
         from before b join said s on s.id = b.id
         where v.id = b.id and v.handed and s.generation <= v.generation
           and (v.observed_generation is null or s.generation > v.observed_generation
             or (s.generation = v.observed_generation and not (v.gone and v.observed_state = 'gone')
               -- The agent's clock may be set back: a minute after the last word, any word is newer.
               and (s.at > v.observed_at or v.received_at < now() - interval '1 minute')))
         returning v.id, (b.observed_generation, b.observed_state, b.observed_facts)
           is distinct from (v.observed_generation, v.observed_state, v.observed_facts) as news)
       select b.id, w.news from before b left join written w on w.id = b.id`,
      [region_id, JSON.stringify(said)],
    );
    // The full report after an outage says mostly what is known; it must not have every machine looked at again.
    await wakeAll(
      tx,
      'vm',
      rows.filter(({ news }) => news === true).map(({ id }) => id),
    );
    return rows.map(({ id, news }) => ({ id, taken: news !== null }));
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
