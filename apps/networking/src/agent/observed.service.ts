import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import type { ObservedVpc } from './messages.js';

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
    let taken = 0;
    // One transaction each: a batch must not hold the rows of many accounts at once.
    for (const item of items) {
      taken += await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        return this.vpc(tx, agent, item);
      });
    }
    if (items.length === 0) await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return taken;
  }

  private async vpc(tx: Sql, { region_id }: AgentIdentity, item: ObservedVpc): Promise<number> {
    const facts = item.addresses === null ? null : JSON.stringify(item.addresses);
    const rows = await tx.query<{ news: boolean; matters: boolean }>(
      `with before as (
         select id, observed_generation, observed_state, observed_reason, observed_facts from vpc
         where id = $1::uuid and region_id = $2::uuid for update)
       update vpc v set observed_generation = $3::int, observed_state = $4, observed_reason = $5,
         observed_at = $6::timestamptz, received_at = now(), observed_facts = $7::jsonb
       from before b
       where v.id = b.id and $3::int <= v.generation
         and (b.observed_generation is null or $3::int > b.observed_generation
           or ($3::int = b.observed_generation
             -- The agent's clock may be set back: a minute after the last word, any word is newer.
             and ($6::timestamptz > v.observed_at or v.received_at < now() - interval '1 minute')))
       returning (b.observed_generation, b.observed_state, b.observed_reason, b.observed_facts)
         is distinct from (v.observed_generation, v.observed_state, v.observed_reason, v.observed_facts) as news,
         (b.observed_state, b.observed_reason) is distinct from (v.observed_state, v.observed_reason)
         or v.deleted_at is not null as matters`,
      [item.id, region_id, item.generation, item.state, item.reason, item.at, facts],
    );
    // What is reported again says mostly what is known.
    if (rows[0]?.news) {
      // A port more or less is nothing to the network's own life.
      if (rows[0].matters) await wake(tx, 'vpc', item.id);
      await this.wakeAddresses(tx, item.id, facts);
    }
    return rows.length;
  }

  /** Has those look at it that wait for something, and those that worked and are not in the list any more. */
  private async wakeAddresses(tx: Sql, vpcId: string, facts: string | null): Promise<void> {
    const concerned = await tx.query<{ kind: string; id: string }>(
      `with seen as (select coalesce($2::jsonb -> 'floating_ips', '[]') as ids)
       select 'floating_ip' as kind, f.id from floating_ip f, seen
       where f.vpc_id = $1::uuid and f.target_kind = 'interface'
         and (f.status <> 'attached' or f.released_at is not null or not seen.ids ? f.id::text)
       union all
       select 'nat_gateway', g.id from nat_gateway g where g.vpc_id = $1::uuid
       order by 1, 2`,
      [vpcId, facts],
    );
    for (const { kind, id } of concerned) await wake(tx, kind, id);
  }
}
