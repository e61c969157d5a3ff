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

/** Usage of models. The rows sum to the totals, the totals to what the ledger charged. */
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
  @TimeField({ declared: true, description: 'Everything that was settled before is in it' })
  as_of!: string;
}
