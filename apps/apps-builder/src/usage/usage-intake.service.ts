import { Inject, Injectable } from '@nestjs/common';
import type { AgentIdentity, LifeUsage, UsageRefusal, UsageReport, UsageTaken } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Epochs, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../shared/settings.js';
import { UsageFaults } from './usage-faults.js';
import { judge, type LifeRow, type Owner, ownerKey, ownersOf } from './usage.rows.js';

const words: Readonly<Record<UsageRefusal, string>> = {
  unknown: 'this region has no such replica or run',
  not_on_demand: 'this replica is paid by the month',
  out_of_time: 'the hour lies before the replica or run was made, or in the future',
  total_fell: 'less than was reported before',
};

/** How far clocks may be apart, milliseconds. */
const skewMs = 120_000;

/** One hour of one app and kind in a report. */
interface Group {
  owner: Owner;
  hour: string;
  items: { item: LifeUsage; index: number; owner: Owner }[];
}

/**
 * Takes what regions measured. Totals, not differences: a message that comes twice or late changes nothing, one that says less
 * than an earlier one is refused. What cannot be (more time than the hour has, more processor time than the time allows) is cut.
 */
@Injectable()
export class UsageIntake {
  constructor(
    private readonly database: Database,
    private readonly epochs: Epochs,
    private readonly settings: Settings,
    private readonly faults: UsageFaults,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** @throws ApiError 409 `stale_epoch` */
  take(agent: AgentIdentity, { items }: UsageReport): Promise<UsageTaken> {
    return this.database.transaction(async (tx) => {
      await this.epochs.check(tx, agent);
      const answer: UsageTaken = { taken: 0, refused: [] };
      const refuse = (index: number, code: UsageRefusal) => {
        answer.refused.push({ index, code, message: words[code] });
      };
      const owners = await ownersOf(tx, agent.region_id, items);
      const groups = new Map<string, Group>();
      for (const [index, item] of items.entries()) {
        const owner = owners.get(ownerKey(item));
        const code = this.misfit(item, owner);
        if (code !== null || !owner) {
          refuse(index, code ?? 'unknown');
          continue;
        }
        const key = `${owner.app_id}/${item.kind}/${item.hour}`;
        const group = groups.get(key) ?? { owner, hour: item.hour, items: [] };
        group.items.push({ item, index, owner });
        groups.set(key, group);
      }
      // In one order, so that two reports never wait for each other.
      for (const [, group] of [...groups].sort(([a], [b]) => (a < b ? -1 : 1)))
        answer.taken += await this.takeGroup(tx, agent.region_id, group, refuse);
      answer.refused.sort((a, b) => a.index - b.index);
      this.faults.count('refused', answer.refused.length);
      return answer;
    });
  }

  private misfit({ hour }: LifeUsage, owner: Owner | undefined): UsageRefusal | null {
    if (!owner) return 'unknown';
    if (!owner.on_demand) return 'not_on_demand';
    const begins = Date.parse(hour);
    const made = owner.created_at?.getTime() ?? 0;
    const fits = begins <= Date.now() + skewMs && begins + this.settings.usageBucketMs >= made - skewMs;
    return fits ? null : 'out_of_time';
  }

  private async takeGroup(
    tx: Sql,
    regionId: string,
    { owner, hour, items }: Group,
    refuse: (index: number, code: UsageRefusal) => void,
  ): Promise<number> {
    const { usageBucketMs: bucketMs, usageLateMs } = this.settings;
    // Written in any case: that holds the row against a part that is being made.
    const [held] = await tx.query<{ id: string; late: boolean }>(
      `insert into usage_hour as h (account_id, app_id, kind, starts_at, ends_at)
       values ($1::uuid, $2::uuid, $3, $4::timestamptz, $4::timestamptz + $5::float8 * interval '1 millisecond')
       on conflict (app_id, kind, starts_at) do update set changed = h.changed
       returning id, now() > h.ends_at + $6::float8 * interval '1 millisecond' as late`,
      [owner.account_id, owner.app_id, owner.kind, hour, bucketMs, usageLateMs],
    );
    const { id, late } = held!;
    const lives = await tx.query<LifeRow>(
      `select owner_id, life, vcpu, memory_mb, seq, cpu_us, running_ms, final, late, real from usage_life where hour_id = $1::uuid`,
      [id],
    );
    let taken = 0;
    for (const { item, index, owner: whose } of items) {
      const judged = judge(item, whose, lives, bucketMs, late);
      if (judged === 'old') continue;
      if (typeof judged === 'string') {
        refuse(index, judged);
        continue;
      }
      const { row, cut } = judged;
      if (cut) {
        this.faults.count('cut');
        this.runtime.log.warn({ item, taken: shown(row) }, 'usage beyond what can be was cut');
      }
      const known = lives.findIndex((life) => life.owner_id === row.owner_id && life.life === row.life);
      if (known < 0) lives.push(row);
      else lives[known] = row;
      await this.write(tx, id, whose.account_id, regionId, row);
      taken += 1;
    }
    if (taken === 0) return 0;
    await tx.query('update usage_hour set changed = true where id = $1::uuid', [id]);
    if (!(await wake(tx, 'usage_hour', id))) await start(tx, 'usage_hour', id, 'counting');
    return taken;
  }

  private async write(
    tx: Sql,
    hourId: string,
    account: string,
    regionId: string,
    row: LifeRow,
  ): Promise<void> {
    await tx.query(
      `insert into usage_life (hour_id, account_id, region_id, owner_id, life, vcpu, memory_mb, seq, cpu_us, running_ms, final, late, real)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5, $6::int, $7::int, $8::bigint, $9::bigint, $10::bigint, $11::boolean, $12::boolean,
         $13::boolean)
       on conflict (hour_id, owner_id, life) do update set seq = excluded.seq, cpu_us = excluded.cpu_us,
         running_ms = excluded.running_ms, final = excluded.final, late = excluded.late, real = excluded.real`,
      [
        hourId,
        account,
        regionId,
        row.owner_id,
        row.life,
        row.vcpu,
        row.memory_mb,
        row.seq.toString(),
        row.cpu_us?.toString() ?? null,
        row.running_ms.toString(),
        row.final,
        row.late,
        row.real,
      ],
    );
  }
}

const shown = ({ cpu_us, running_ms }: LifeRow) => ({
  cpu_us: cpu_us?.toString() ?? null,
  running_ms: running_ms.toString(),
});
