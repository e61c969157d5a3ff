import {
  Inject,
  Injectable,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import type { Nano } from '@nebo/contracts';
import { Database, type SqlValue } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Counters } from '../dialects/dialect.js';
import { InferenceFigures } from './inference-figures.js';

/**
 * How a request ended. complete: answered and billed. uncounted: answered without counters, free. aborted: the client
 * left. drained: it left, and the answer was read to its counters. broken: the upstream broke off. failed: no upstream
 * answered, or the settlement failed. stopped: this service was stopped.
 */
export type Outcome = 'complete' | 'uncounted' | 'aborted' | 'drained' | 'broken' | 'failed' | 'stopped';

/** One request, without any of its content. */
export interface RequestRecord {
  operationId: string;
  requestId: string;
  account: string;
  key: string;
  format: string;
  model: string;
  upstream: string | null;
  streamed: boolean;
  /** What the client saw; 499: it had left. */
  status: number;
  outcome: Outcome;
  finish: string | null;
  counters: Counters | null;
  priceVersion: number;
  cost: Nano;
  /** About what an unbilled abort took; for the share that drain mode looks at, never billed. */
  forgone: Nano;
  startedAt: Date;
  firstByteAt: Date | null;
  endedAt: Date;
}

const columns = [
  'operation_id',
  'request_id',
  'account_id',
  'key_id',
  'format',
  'model',
  'upstream',
  'streamed',
  'status',
  'outcome',
  'finish_reason',
  'input_tokens',
  'cached_tokens',
  'output_tokens',
  'reasoning_tokens',
  'price_version',
  'cost',
  'started_at',
  'first_byte_at',
  'ended_at',
];
/** Rows wait for each other this long, so that many requests are one statement. Milliseconds. */
const gather = 200;
const mostRows = 500;
/** Most rows that wait for the database. */
const mostQueued = 20_000;
/**
 * Unbilled aborts of a key in an hour, above which its later aborts are read to their counters (inference-gateway.md, 4). As
 * many in a month make the share of what it spent count, so that one early abort of a new key is not all of its month.
 */
export const freeAborts = 5;
/** The share: unbilled aborts above a hundredth of the month's spend. */
const share = 100n;

/** How long the question of drain mode may take before the upstream is closed all the same. Milliseconds. */
const drainPatience = 150;

/** The log of requests: what was asked of which model by which key, how it ended, what it cost. */
@Injectable()
export class RequestLog implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private rows: RequestRecord[] = [];
  private timer: NodeJS.Timeout | undefined;
  private pruner: NodeJS.Timeout | undefined;
  private writing: Promise<void> = Promise.resolve();
  /** Rows that are being written or wait for it. */
  private queued = 0;

  constructor(
    private readonly database: Database,
    private readonly figures: InferenceFigures,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log' | 'config'>,
  ) {}

  onApplicationBootstrap(): void {
    const days = this.runtime.config.int('NEBO_REQUEST_LOG_DAYS', 90, { min: 1 });
    this.pruner = setInterval(() => {
      this.database
        .transaction((tx) =>
          tx.query('delete from request_log where ended_at < now() - make_interval(days => $1)', [days]),
        )
        .catch((err: unknown) => this.runtime.log.warn({ err }, 'pruning of the request log failed'));
    }, 3_600_000).unref();
  }

  async beforeApplicationShutdown(): Promise<void> {
    clearInterval(this.pruner);
    await this.flush();
  }

  /** Notes a request; it is in the table and in the figures within a moment. A lost row is no lost money. */
  write(record: RequestRecord): void {
    this.figures.trace(record);
    this.rows.push(record);
    if (this.rows.length >= mostRows) void this.flush();
    else this.timer ??= setTimeout(() => void this.flush(), gather).unref();
  }

  /** Writes what waits. */
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const rows = this.rows.splice(0);
    if (rows.length > 0) {
      this.figures.count(rows);
      this.queue(rows);
    }
    await this.writing;
  }

  /** Puts rows behind those that are being written; a database that is away must not fill the memory. */
  private queue(rows: readonly RequestRecord[]): void {
    if (this.queued + rows.length > mostQueued) {
      this.runtime.log.warn(
        { rows: rows.length },
        'rows of the request log are lost: the database is too slow',
      );
      return;
    }
    this.queued += rows.length;
    this.writing = this.writing
      .then(() => this.insert(rows))
      .finally(() => {
        this.queued -= rows.length;
      });
  }

  /**
   * Did the key leave so often before its counters, or take so much of what it spends, that its next abort is read to the
   * end?
   */
  async isInDrainMode(key: string, account: string): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    // The vendor goes on generating meanwhile: a database that is slow or away must not keep it at that.
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), drainPatience);
    });
    const asked = this.askDrainMode(key, account);
    asked.catch(() => undefined);
    try {
      return await Promise.race([asked, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  private async askDrainMode(key: string, account: string): Promise<boolean> {
    await this.flush();
    const [row] = await this.database.transaction(
      (tx) =>
        tx.query<{ recent: bigint; aborts: bigint | null; forgone: bigint | null; spent: bigint | null }>(
          `select m.aborts, m.forgone, m.spent,
             (select count(*) from request_log
               where key_id = $1::uuid and outcome = 'aborted' and cost = 0 and ended_at > now() - interval '1 hour') as recent
           from (values (1)) one left join key_month m on m.key_id = $1::uuid and m.month = $2`,
          [key, monthOf(new Date())],
        ),
      account,
    );
    if (!row) return false;
    if (Number(row.recent) > freeAborts) return true;
    return Number(row.aborts ?? 0) > freeAborts && BigInt(row.forgone ?? 0) * share > BigInt(row.spent ?? 0);
  }

  private async insert(rows: readonly RequestRecord[]): Promise<void> {
    const values: SqlValue[] = [];
    const tuples = rows.map(
      (row) =>
        `(${valuesOf(row)
          .map((value) => `$${values.push(value)}`)
          .join(', ')})`,
    );
    try {
      await this.database.transaction(async (tx) => {
        await tx.query(
          `insert into request_log (${columns.join(', ')}) values ${tuples.join(', ')} on conflict do nothing`,
          values,
        );
        await tx.query(
          `insert into key_month as m (key_id, account_id, month, spent, forgone, aborts)
             select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::integer[])
             order by 1, 3
           on conflict (key_id, month) do update set spent = m.spent + excluded.spent,
             forgone = m.forgone + excluded.forgone, aborts = m.aborts + excluded.aborts`,
          monthsOf(rows),
        );
      });
    } catch (err) {
      this.runtime.log.warn({ err, rows: rows.length }, 'rows of the request log are lost');
    }
  }
}

function valuesOf(row: RequestRecord): SqlValue[] {
  const { counters } = row;
  return [
    row.operationId,
    row.requestId,
    row.account,
    row.key,
    row.format,
    row.model,
    row.upstream,
    row.streamed,
    row.status,
    row.outcome,
    row.finish,
    counters?.input ?? null,
    counters?.cached ?? null,
    counters?.output ?? null,
    counters?.reasoning ?? null,
    row.priceVersion,
    row.cost,
    row.startedAt,
    row.firstByteAt,
    row.endedAt,
  ];
}

const monthOf = (date: Date): string => date.toISOString().slice(0, 7);

/** Sums of rows by key and month, as columns of `key_month`. */
function monthsOf(rows: readonly RequestRecord[]): SqlValue[] {
  const sums = new Map<
    string,
    { key: string; account: string; month: string; spent: Nano; forgone: Nano; aborts: number }
  >();
  for (const { key, account, endedAt, cost, forgone, outcome } of rows) {
    const month = monthOf(endedAt);
    const name = `${key} ${month}`;
    let sum = sums.get(name);
    if (!sum) sums.set(name, (sum = { key, account, month, spent: 0n, forgone: 0n, aborts: 0 }));
    sum.spent += cost;
    sum.forgone += forgone;
    if (outcome === 'aborted' && cost === 0n) sum.aborts += 1;
  }
  const all = [...sums.values()];
  return [
    all.map(({ key }) => key),
    all.map(({ account }) => account),
    all.map(({ month }) => month),
    all.map(({ spent }) => spent.toString()),
    all.map(({ forgone }) => forgone.toString()),
    all.map(({ aborts }) => aborts.toString()),
  ];
}
