import { Injectable } from '@nestjs/common';
import { formatRubles, type UsageQuery, type V1Usage, type V1UsageCounts } from '@nebo/contracts';
import { Database, type SqlValue } from '@nebo/persistence';
import { ApiError, billingUnavailable, validationError } from '@nebo/service-kit';
import { sqlStateOf } from '../database/guarded.js';
import { AppsUsage } from './apps-usage.service.js';
import { type UsageRange, usageRange } from './usage-range.js';

const counts = ['input_tokens', 'cached_tokens', 'output_tokens', 'reasoning_tokens'] as const;
type Tokens = (typeof counts)[number];

interface SumRow extends Record<Tokens | 'requests' | 'amount', string> {
  day: string | null;
  model: string | null;
  key_id: string | null;
}

/** One charged request, as the export tells it. */
export interface UsageLine extends Record<Tokens, number> {
  at: string;
  operation_id: string;
  key_id: string | null;
  model: string | null;
  /** Decimal rubles. */
  amount: string;
}

interface LineRow extends Record<Tokens, string> {
  operation_id: string;
  key_id: string | null;
  model: string | null;
  amount: bigint;
  created_at: Date;
  /** Of PostgreSQL's precision, to go on from. */
  position: string;
  seq: bigint;
}

/** What of the usage is wanted. */
export type UsageFilter = Pick<UsageQuery, 'from' | 'to' | 'tz' | 'key_id' | 'model'>;

const maxRows = 10_000;
const linesAtOnce = 1_000;

/** Columns that a report can be told apart by. */
const dimensions = {
  day: "to_char(created_at at time zone $4, 'YYYY-MM-DD')",
  model: 'model',
  key: 'key_id::text',
} as const;

/** Numeric: a count that some service reported beyond every integer must not break the page. */
const tokens = (name: Tokens) => `coalesce((facts ->> '${name}')::numeric, 0)`;

const wanted = `from usage_record
  where account_id = $1::uuid and kind = 'inference'
    and created_at >= $2::date::timestamp at time zone $4
    and created_at < ($3::date + 1)::timestamp at time zone $4
    and ($5::uuid is null or key_id = $5::uuid) and ($6::text is null or model = $6)`;

const values = (account: string, range: UsageRange, filter: UsageFilter): SqlValue[] => [
  account,
  range.from,
  range.to,
  range.tz,
  filter.key_id ?? null,
  filter.model ?? null,
];

/** Usage as it was charged: of models, and of apps on demand. */
@Injectable()
export class UsageService {
  constructor(
    private readonly database: Database,
    private readonly apps: AppsUsage,
  ) {}

  /**
   * Sums by day, model and key, as wanted, and of apps.
   * @throws ApiError 422 for a wrong range or more than 10,000 rows; 503
   */
  async report(account: string, query: UsageQuery): Promise<V1Usage> {
    const range = usageRange(query);
    const by = [...new Set(query.by.split(','))] as (keyof typeof dimensions)[];
    const column = (name: keyof typeof dimensions) => (by.includes(name) ? dimensions[name] : 'null::text');
    const groups = by.map((name) => dimensions[name]).join(', ');
    const text = `select ${column('day')} as day, ${column('model')} as model, ${column('key')} as key_id,
        count(*) as requests, sum(amount) as amount, ${counts.map((name) => `sum(${tokens(name)}) as ${name}`).join(', ')}
      ${wanted} group by ${groups} order by 1, 2, 3 limit ${maxRows + 1}`;
    const { rows, at, apps, allowance } = await this.read(account, async (tx) => {
      // Taken before the rows: what was settled until then is in them.
      const [{ at }] = (await tx.query<{ at: Date }>('select clock_timestamp() as at')) as [{ at: Date }];
      const rows = await tx.query<SumRow>(text, values(account, range, query));
      const apps = await this.apps.report(tx, account, range, query);
      return { rows, at, apps, allowance: await this.apps.allowance(tx, account) };
    });
    if (rows.length > maxRows)
      throw validationError([
        { loc: ['query', 'by'], msg: `more than ${maxRows} rows; ask for less or export`, type: 'too_long' },
      ]);
    return {
      ...range,
      by,
      rows: rows.map(({ day, model, key_id, ...sums }) => ({ day, model, key_id, ...countsOf([sums]) })),
      totals: countsOf(rows),
      apps,
      allowance,
      as_of: at.toISOString(),
    };
  }

  /**
   * Every charged request, oldest first, page by page. The first page is read before this resolves, so that what fails is
   * an answer and not a broken file.
   * @throws ApiError 422; 503
   */
  async lines(account: string, filter: UsageFilter): Promise<AsyncGenerator<UsageLine[]>> {
    const range = usageRange(filter);
    const first = await this.page(account, range, filter, null);
    const next = (after: LineRow) => this.page(account, range, filter, after);
    return (async function* () {
      for (let rows = first; rows.length > 0;) {
        yield rows.map(usageLine);
        rows = rows.length < linesAtOnce ? [] : await next(rows.at(-1)!);
      }
    })();
  }

  private page(
    account: string,
    range: UsageRange,
    filter: UsageFilter,
    after: LineRow | null,
  ): Promise<LineRow[]> {
    const text = `select operation_id, key_id::text, model, amount, created_at, created_at::text as position, seq,
        ${counts.map((name) => `${tokens(name)} as ${name}`).join(', ')}
      ${wanted} and ($7::timestamptz is null or (created_at, seq) > ($7::timestamptz, $8::bigint))
      order by created_at, seq limit ${linesAtOnce}`;
    const from = [after?.position ?? null, after?.seq ?? null];
    return this.read(account, (tx) => tx.query<LineRow>(text, [...values(account, range, filter), ...from]));
  }

  private async read<T>(
    account: string,
    work: Parameters<typeof this.database.transaction<T>>[0],
  ): Promise<T> {
    try {
      return await this.database.transaction(work, account);
    } catch (error) {
      // A zone that this process knows and PostgreSQL does not.
      if (sqlStateOf(error) === '22023')
        throw validationError([
          { loc: ['query', 'tz'], msg: 'there is no such time zone', type: 'value_error' },
        ]);
      throw error instanceof ApiError ? error : billingUnavailable(error);
    }
  }
}

/** Sums are exact: counts beyond 2⁵³ do not happen, amounts do not pass through a double. */
function countsOf(rows: readonly Record<Tokens | 'requests' | 'amount', string>[]): V1UsageCounts {
  const sum = (name: Tokens | 'requests' | 'amount') =>
    rows.reduce((total, row) => total + BigInt(row[name]), 0n);
  return {
    requests: Number(sum('requests')),
    input_tokens: Number(sum('input_tokens')),
    cached_tokens: Number(sum('cached_tokens')),
    output_tokens: Number(sum('output_tokens')),
    reasoning_tokens: Number(sum('reasoning_tokens')),
    amount: formatRubles(sum('amount')),
  };
}

const usageLine = (row: LineRow): UsageLine => ({
  at: row.created_at.toISOString(),
  operation_id: row.operation_id,
  key_id: row.key_id,
  model: row.model,
  input_tokens: Number(row.input_tokens),
  cached_tokens: Number(row.cached_tokens),
  output_tokens: Number(row.output_tokens),
  reasoning_tokens: Number(row.reasoning_tokens),
  amount: formatRubles(row.amount),
});
