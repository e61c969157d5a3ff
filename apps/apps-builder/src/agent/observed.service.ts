import { Epochs } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity, Observed } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';

/**
 * What a region saw, written beside what is wanted of it. A message may be lost, doubled or late: an older generation or an
 * older time changes nothing, a final state stays. The lifecycles draw the conclusions.
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
  async take(agent: AgentIdentity, items: readonly Observed[]): Promise<number> {
    let taken = 0;
    // One transaction each: a batch must not hold the rows of many apps at once.
    for (const item of items) {
      taken += await this.database.transaction(async (tx) => {
        await this.epochs.check(tx, agent);
        if (item.kind === 'run') return this.run(tx, agent, item);
        return item.kind === 'build' ? this.build(tx, agent, item) : this.replica(tx, agent, item);
      });
    }
    if (items.length === 0) await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return taken;
  }

  private async build(tx: Sql, { region_id }: AgentIdentity, item: Observed): Promise<number> {
    const rows = await tx.query(
      `update build set observed_generation = $3::int, observed_state = $4, observed_reason = $5, observed_facts = $6::jsonb,
         observed_at = $7::timestamptz
       where id = $1::uuid and region_id = $2::uuid and $3::int <= generation
         and (observed_state is null
           or (observed_state = 'building' and $4 <> 'building' and $3::int >= observed_generation)
           or $3::int > observed_generation)
       returning 1 as taken`,
      [item.id, region_id, item.generation, item.state, item.reason, JSON.stringify(item.facts), item.at],
    );
    if (rows.length > 0) await wake(tx, 'build', item.id);
    return rows.length;
  }

  private async run(tx: Sql, { region_id }: AgentIdentity, item: Observed): Promise<number> {
    const rows = await tx.query(
      `update job_run set observed_generation = $3::int, observed_state = $4, observed_reason = $5, observed_facts = $6::jsonb,
         observed_at = $7::timestamptz
       where id = $1::uuid and region_id = $2::uuid and $3::int <= generation
         and (observed_state is null or (observed_state = 'running' and $4 <> 'running' and $3::int >= observed_generation))
       returning 1 as taken`,
      [item.id, region_id, item.generation, item.state, item.reason, JSON.stringify(item.facts), item.at],
    );
    if (rows.length > 0) await wake(tx, 'job_run', item.id);
    return rows.length;
  }

  private async replica(tx: Sql, { region_id }: AgentIdentity, item: Observed): Promise<number> {
    const { host, port, isolated, started_at, ready_at, wakeable, crashes } = replicaFacts(item.facts);
    const rows = await tx.query<{ app_id: string; news: boolean }>(
      `with before as (
         select id, observed_generation, observed_state, host, port, wakeable, crashes from replica where id = $1::uuid and region_id = $2::uuid for update)
       update replica r set observed_generation = $3::int, observed_state = $4, observed_reason = $5, observed_at = $6::timestamptz,
         received_at = now(), host = coalesce($7, r.host), port = coalesce($8::int, r.port), isolated = coalesce($9::boolean, r.isolated),
         started_at = coalesce($10::timestamptz, r.started_at), ready_at = coalesce($11::timestamptz, r.ready_at),
         wakeable = coalesce($12::boolean, r.wakeable), crashes = coalesce($13::int, r.crashes),
         ended_at = case when r.gone and $3::int = r.generation and $4 = 'gone' then now() end
       from before b
       where r.id = b.id and $3::int <= r.generation and r.ended_at is null
         and (r.observed_generation is null or $3::int > r.observed_generation
           or ($3::int = r.observed_generation and r.observed_state <> 'failed'
             -- The agent's clock may be set back: a minute after the last word, any word is newer.
             and ($6::timestamptz > r.observed_at or r.received_at < now() - interval '1 minute')))
       returning r.app_id, (b.observed_generation, b.observed_state, b.host, b.port, b.wakeable, b.crashes)
         is distinct from (r.observed_generation, r.observed_state, r.host, r.port, r.wakeable, r.crashes) as news`,
      [
        item.id,
        region_id,
        item.generation,
        item.state,
        item.reason,
        item.at,
        host,
        port,
        isolated,
        started_at,
        ready_at,
        wakeable,
        crashes,
      ],
    );
    // The periodic full report says mostly what is known; it must not have every app looked at again.
    if (rows[0]?.news) await wake(tx, 'rollout', rows[0].app_id);
    return rows.length;
  }
}

const text = (value: unknown): string | null =>
  typeof value === 'string' && value.length <= 255 && !value.includes('\0') ? value : null;
const time = (value: unknown): string | null =>
  typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? new Date(value).toISOString() : null;

function replicaFacts(facts: Record<string, unknown>) {
  const { port, isolated, wakeable, crashes } = facts;
  return {
    host: text(facts['host']),
    port: typeof port === 'number' && Number.isInteger(port) && port > 0 && port < 65_536 ? port : null,
    isolated: typeof isolated === 'boolean' ? isolated : null,
    wakeable: typeof wakeable === 'boolean' ? wakeable : null,
    crashes:
      typeof crashes === 'number' && Number.isInteger(crashes) && crashes >= 0
        ? Math.min(crashes, 1_000_000)
        : null,
    started_at: time(facts['started_at']),
    ready_at: time(facts['ready_at']),
  };
}
