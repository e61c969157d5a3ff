import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity } from '@nebo/contracts';
import { wake, wakeAll } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import type { ObservedVpc } from './messages.js';

/** VPCs in one transaction: it must not hold the rows of many accounts for long. */
const atOnce = 100;

/**
 * What a region saw, written beside what is wanted of it. A message may be lost, doubled or late: an older generation or an
 * older time changes nothing. The lifecycle draws the conclusions.
 */
@Injectable()
export class ObservedService {
  constructor(
    private readonly database: Database,
    private readonly epochs: Epochs,
  ) {}

  /**
   * @returns how many observations were newer than what was known
   * @throws ApiError 409 `stale_epoch`
   */
  async take(agent: AgentIdentity, items: readonly ObservedVpc[]): Promise<number> {
    // What is said twice of one VPC goes one by one, in the order in which it was said.
    const times = new Map<string, number>();
    for (const { id } of items) times.set(id, (times.get(id) ?? 0) + 1);
    const single = items.filter(({ id }) => times.get(id) === 1);
    let taken = 0;
    const done = new Set<string>();
    const write = async (batch: readonly ObservedVpc[], skips: boolean) => {
      const written = await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        return this.vpcs(tx, agent, batch, skips);
      });
      for (const { id, news } of written) {
        done.add(id);
        taken += Number(news !== null);
      }
    };
    for (let from = 0; from < single.length; from += atOnce)
      await write(single.slice(from, from + atOnce), true);
    // What somebody else is writing now is waited for, one transaction each.
    for (const item of items) if (!done.has(item.id) || times.get(item.id)! > 1) await write([item], false);
    if (items.length === 0) await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return taken;
  }

  /**
   * @param skips leaves out VPCs that somebody else is writing
   * @returns the VPCs that were looked at; `news`: whether the word says something new, null when it is older than what was known
   */
  private async vpcs(
    tx: Sql,
    { region_id }: AgentIdentity,
    items: readonly ObservedVpc[],
    skips: boolean,
  ): Promise<{ id: string; news: boolean | null }[]> {
    const said = items.map(({ id, generation, state, reason, addresses, at }) => ({
      ...{ id, generation, state, reason, at },
      facts: addresses,
    }));
    const rows = await tx.query<{ id: string; news: boolean | null; matters: boolean | null }>(
      `with said as materialized (select id, generation, state, reason, nullif(facts, 'null'::jsonb) as facts, at
           from jsonb_to_recordset($2::jsonb)
           as s (id uuid, generation int, state text, reason text, facts jsonb, at timestamptz)),
       before as materialized (
         select v.id, v.observed_generation, v.observed_state, v.observed_reason, v.observed_facts from vpc v
         where v.id in (select id from said) and v.region_id = $1::uuid
         order by v.id for update ${skips ? 'skip locked' : ''}),
       written as (
         update vpc v set observed_generation = s.generation, observed_state = s.state, observed_reason = s.reason,
           observed_at = s.at, received_at = now(), observed_facts = s.facts
         from before b join said s on s.id = b.id
         where v.id = b.id and s.generation <= v.generation
           and (b.observed_generation is null or s.generation > b.observed_generation
             or (s.generation = b.observed_generation
               -- The agent's clock may be set back: a minute after the last word, any word is newer.
               and (s.at > v.observed_at or v.received_at < now() - interval '1 minute')))
         returning v.id, (b.observed_generation, b.observed_state, b.observed_reason, b.observed_facts)
           is distinct from (v.observed_generation, v.observed_state, v.observed_reason, v.observed_facts) as news,
           (b.observed_state, b.observed_reason) is distinct from (v.observed_state, v.observed_reason)
           or v.deleted_at is not null as matters)
       select b.id, w.news, w.matters from before b left join written w on w.id = b.id`,
      [region_id, JSON.stringify(said)],
    );
    const idsOf = (chosen: typeof rows) => chosen.map(({ id }) => id);
    // What is reported again says mostly what is known. A port more or less is nothing to the network's own life.
    const news = idsOf(rows.filter((row) => row.news === true));
    await wakeAll(tx, 'vpc', idsOf(rows.filter((row) => row.news === true && row.matters === true)));
    if (news.length > 0) await this.wakeAddresses(tx, news);
    return rows;
  }

  /** Has those look at it that wait for something, and those that worked and are not in the list any more. */
  private async wakeAddresses(tx: Sql, vpcIds: readonly string[]): Promise<void> {
    const concerned = await tx.query<{ kind: string; id: string }>(
      `select 'floating_ip' as kind, f.id from floating_ip f join vpc v on v.id = f.vpc_id
       where f.vpc_id = any($1::uuid[]) and f.target_kind = 'interface'
         and (f.status <> 'attached' or f.released_at is not null
           or not coalesce(v.observed_facts -> 'floating_ips', '[]') ? f.id::text)
       union all
       select 'nat_gateway', g.id from nat_gateway g where g.vpc_id = any($1::uuid[])
       order by 1, 2`,
      [vpcIds],
    );
    for (const { kind, id } of concerned) await wake(tx, kind, id);
  }
}
