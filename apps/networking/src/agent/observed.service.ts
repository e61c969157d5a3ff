import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity, Observed } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';

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
  async take(agent: AgentIdentity, items: readonly Observed[]): Promise<number> {
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

  private async vpc(tx: Sql, { region_id }: AgentIdentity, item: Observed): Promise<number> {
    const rows = await tx.query<{ news: boolean }>(
      `with before as (
         select id, observed_generation, observed_state, observed_reason from vpc
         where id = $1::uuid and region_id = $2::uuid for update)
       update vpc v set observed_generation = $3::int, observed_state = $4, observed_reason = $5,
         observed_at = $6::timestamptz, received_at = now()
       from before b
       where v.id = b.id and $3::int <= v.generation
         and (b.observed_generation is null or $3::int > b.observed_generation
           or ($3::int = b.observed_generation
             -- The agent's clock may be set back: a minute after the last word, any word is newer.
             and ($6::timestamptz > v.observed_at or v.received_at < now() - interval '1 minute')))
       returning (b.observed_generation, b.observed_state, b.observed_reason)
         is distinct from (v.observed_generation, v.observed_state, v.observed_reason) as news`,
      [item.id, region_id, item.generation, item.state, item.reason, item.at],
    );
    // What is reported again says mostly what is known.
    if (rows[0]?.news) await wake(tx, 'vpc', item.id);
    return rows.length;
  }
}
