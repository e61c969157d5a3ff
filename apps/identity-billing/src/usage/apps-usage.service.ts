import { Injectable } from '@nestjs/common';
import {
  formatRubles,
  type UsageQuery,
  type V1Allowance,
  type V1AppUsageCounts,
  type V1AppUsageRow,
} from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { validationError } from '@nebo/service-kit';
import type { UsageRange } from './usage-range.js';

interface Sums {
  cpu_us: string;
  memory_mb_ms: string;
  cpu_included_us: string;
  memory_included_mb_ms: string;
  free_hours: string;
  amount: string;
}

interface SumRow extends Sums {
  day: string | null;
  app_id: string;
  kind: 'replica' | 'run';
}

interface AllowanceRow {
  plan: string;
  month: string;
  active_cpu_hours: number;
  memory_gb_hours: number;
  cpu_us: bigint;
  memory_mb_ms: bigint;
}

const maxRows = 10_000;
/** An hour of one processor in microseconds, and of one GB in MB-milliseconds. */
const cpuHour = 3_600_000_000n;
const memoryHour = 1_024n * 3_600_000n;

/** What apps used on demand, as it was charged, and what is left of the plan's allowance. */
@Injectable()
export class AppsUsage {
  /**
   * Sums by app and kind, and by day when that is wanted.
   * @param tx a transaction of the account
   * @throws ApiError 422 for more than 10,000 rows
   */
  async report(
    tx: Sql,
    account: string,
    range: UsageRange,
    query: UsageQuery,
  ): Promise<{ rows: V1AppUsageRow[]; totals: V1AppUsageCounts }> {
    // Who asks for a key or a model asks for models alone.
    if (query.key_id !== undefined || query.model !== undefined) return { rows: [], totals: countsOf([]) };
    const byDay = query.by.split(',').includes('day');
    const rows = await tx.query<SumRow>(
      `select ${byDay ? "to_char(starts_at at time zone $4, 'YYYY-MM-DD')" : 'null::text'} as day, app_id::text, kind, sum(cpu_us) as cpu_us,
         sum(memory_mb_ms) as memory_mb_ms, sum(cpu_included_us) as cpu_included_us,
         sum(memory_included_mb_ms) as memory_included_mb_ms, sum(amount) as amount,
         count(distinct starts_at) filter (where free is not null) as free_hours
       from compute_usage
       where account_id = $1::uuid and starts_at >= $2::date::timestamp at time zone $4
         and starts_at < ($3::date + 1)::timestamp at time zone $4 and ($5::uuid is null or app_id = $5::uuid)
       group by 1, 2, 3 order by 1, 2, 3 limit ${maxRows + 1}`,
      [account, range.from, range.to, range.tz, query.app_id ?? null],
    );
    if (rows.length > maxRows)
      throw validationError([
        {
          loc: ['query', 'by'],
          msg: `more than ${maxRows} rows of apps; ask for fewer days`,
          type: 'too_long',
        },
      ]);
    return {
      rows: rows.map(({ day, app_id, kind, ...sums }) => ({ day, app_id, kind, ...countsOf([sums]) })),
      totals: countsOf(rows),
    };
  }

  /** The allowance of the present calendar month in UTC. */
  async allowance(tx: Sql, account: string): Promise<V1Allowance> {
    const [row] = await tx.query<AllowanceRow>(
      `select p.id as plan, to_char(utc_month(clock_timestamp()), 'YYYY-MM') as month, p.active_cpu_hours, p.memory_gb_hours,
         coalesce(m.cpu_us, 0) as cpu_us, coalesce(m.memory_mb_ms, 0) as memory_mb_ms
       from account a join tariff_plan p on p.id = a.tariff_plan
         left join allowance_month m on m.account_id = a.id and m.month = utc_month(clock_timestamp())
       where a.id = $1::uuid`,
      [account],
    );
    if (!row) throw new Error(`account ${account} has no plan`);
    const { plan, month, active_cpu_hours, memory_gb_hours, cpu_us, memory_mb_ms } = row;
    return {
      plan,
      month,
      active_cpu_hours: hours(BigInt(active_cpu_hours), cpu_us, cpuHour),
      memory_gb_hours: hours(BigInt(memory_gb_hours), memory_mb_ms, memoryHour),
    };
  }
}

function hours(included: bigint, used: bigint, unit: bigint) {
  const left = included * unit - used;
  return {
    included: included.toString(),
    used: decimal(used, unit, 6),
    left: decimal(left > 0n ? left : 0n, unit, 6),
  };
}

function countsOf(rows: readonly Sums[]): V1AppUsageCounts {
  const sum = (name: keyof Sums) => rows.reduce((total, row) => total + BigInt(row[name]), 0n);
  return {
    active_cpu_seconds: decimal(sum('cpu_us'), 1_000_000n, 6),
    memory_gb_hours: decimal(sum('memory_mb_ms'), memoryHour, 9),
    included_cpu_seconds: decimal(sum('cpu_included_us'), 1_000_000n, 6),
    included_memory_gb_hours: decimal(sum('memory_included_mb_ms'), memoryHour, 9),
    free_hours: Number(sum('free_hours')),
    amount: formatRubles(sum('amount')),
  };
}

/** A quotient as a decimal, rounded half up, without zeros at its end. */
function decimal(value: bigint, unit: bigint, places: number): string {
  const scale = 10n ** BigInt(places);
  const scaled = (value * scale * 2n + unit) / (unit * 2n);
  const fraction = (scaled % scale).toString().padStart(places, '0').replace(/0+$/, '');
  return `${scaled / scale}${fraction === '' ? '' : `.${fraction}`}`;
}
