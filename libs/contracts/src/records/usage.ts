import {
  EnumField,
  IdField,
  IntField,
  ListField,
  RecordField,
  StrField,
  StringsField,
  TimeField,
} from '../fields.js';

const day = /^\d{4}-\d{2}-\d{2}$/;

/** What of an account's usage of models is wanted. Days are those of `tz`, both included. */
class UsageFilter {
  @StrField({
    optional: true,
    pattern: day,
    rule: 'must be a day, 2026-11-30',
    description: 'First day; 30 days when absent',
  })
  from?: string;
  @StrField({
    optional: true,
    pattern: day,
    rule: 'must be a day, 2026-11-30',
    description: 'Last day; today when absent',
  })
  to?: string;
  @StrField({ max: 64, default: 'UTC', description: 'Time zone of the days, Europe/Moscow' })
  tz: string = 'UTC';
  @IdField({ optional: true, description: 'Only this inference key; a revoked one too' })
  key_id?: string;
  @StrField({ optional: true, min: 1, max: 200, description: 'Only this model' })
  model?: string;
}

export class UsageQuery extends UsageFilter {
  @IdField({ optional: true, description: 'Of apps: only this one' })
  app_id?: string;
  @StrField({
    max: 40,
    default: 'day',
    pattern: /^(day|model|key)(,(day|model|key)){0,2}$/,
    rule: 'must be some of day, model and key, with commas between',
    description: 'What the rows are told apart by: day, model, key',
  })
  by: string = 'day';
}

export class UsageExportQuery extends UsageFilter {
  @EnumField(['csv', 'ndjson'], { default: 'csv' })
  format: 'csv' | 'ndjson' = 'csv';
}

/** Requests that were charged, their tokens and what they cost. */
export class V1UsageCounts {
  @IntField()
  requests!: number;
  @IntField({ description: 'With those read from the cache' })
  input_tokens!: number;
  @IntField()
  cached_tokens!: number;
  @IntField({ description: 'With those of reasoning' })
  output_tokens!: number;
  @IntField()
  reasoning_tokens!: number;
  @StrField({ description: 'Exact, rubles' })
  amount!: string;
}

/** One row of a usage report. What the rows are not told apart by is null. */
export class V1UsageRow extends V1UsageCounts {
  @StrField({ nullable: true })
  day!: string | null;
  @StrField({ nullable: true })
  model!: string | null;
  @StrField({ nullable: true })
  key_id!: string | null;
}

/** What apps used on demand. Quantities are decimals, as they were measured; amounts are exact. */
export class V1AppUsageCounts {
  @StrField({ description: 'Processor time, measured outside of the app' })
  active_cpu_seconds!: string;
  @StrField({ description: 'Memory of the replicas times the time they ran' })
  memory_gb_hours!: string;
  @StrField({ description: 'Of that time, covered by the plan' })
  included_cpu_seconds!: string;
  @StrField({ description: 'Of that memory, covered by the plan' })
  included_memory_gb_hours!: string;
  @IntField({ description: 'Hours of which something was not measured and is free' })
  free_hours!: number;
  @StrField({ description: 'Exact, rubles' })
  amount!: string;
}

/** One row of apps: always by app and kind, by day as well when the report is. */
export class V1AppUsageRow extends V1AppUsageCounts {
  @StrField({ nullable: true })
  day!: string | null;
  @StrField()
  app_id!: string;
  @EnumField(['replica', 'run'], { description: 'Replicas on demand, or runs of jobs' })
  kind!: 'replica' | 'run';
}

/** Empty when a key or a model is asked for. */
export class V1AppUsage {
  @ListField(() => V1AppUsageRow)
  rows!: V1AppUsageRow[];
  @RecordField(() => V1AppUsageCounts)
  totals!: V1AppUsageCounts;
}

/** Hours of a plan in a month, decimals. */
export class V1AllowanceHours {
  @StrField()
  included!: string;
  @StrField()
  used!: string;
  @StrField()
  left!: string;
}

/** What the account's plan includes this month (UTC), and what is left of it. It is spent before money. */
export class V1Allowance {
  @StrField()
  plan!: string;
  @StrField({ description: '2026-11' })
  month!: string;
  @RecordField(() => V1AllowanceHours)
  active_cpu_hours!: V1AllowanceHours;
  @RecordField(() => V1AllowanceHours)
  memory_gb_hours!: V1AllowanceHours;
}

/** Usage of models, and of apps on demand. The rows sum to the totals, the totals to what the ledger charged. */
export class V1Usage {
  @StrField()
  from!: string;
  @StrField()
  to!: string;
  @StrField()
  tz!: string;
  @StringsField()
  by!: string[];
  @ListField(() => V1UsageRow)
  rows!: V1UsageRow[];
  @RecordField(() => V1UsageCounts)
  totals!: V1UsageCounts;
  @RecordField(() => V1AppUsage)
  apps!: V1AppUsage;
  @RecordField(() => V1Allowance)
  allowance!: V1Allowance;
  @TimeField({ declared: true, description: 'Everything that was settled before is in it' })
  as_of!: string;
}
