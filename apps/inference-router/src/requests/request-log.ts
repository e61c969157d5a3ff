import {
  Inject,
  Injectable,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import type { Nano } from '@nebo/contracts';
import { Database, sqlArray, type SqlValue } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { HangUps } from './hang-ups.js';
import { InferenceFigures } from './inference-figures.js';
import type { RequestRecord } from './request-record.js';

/** Rows wait for each other this long, so that many requests are one statement. Milliseconds. */
const gather = 400;
const mostRows = 500;
/** Most rows that wait for the database. */
const mostQueued = 20_000;
/**
 * Unbilled aborts of a key in an hour, above which its later aborts are read to their counters (inference-gateway.md, 4). As
 * many in a month make the share of what it spent count, so that one early abort of a new key is not all of its month.
 */
export const freeAborts = 5;
/** The share: unbilled aborts above a hundredth of the month's spend. */
const share = 100;

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
  private readonly hangUps = new HangUps(freeAborts);

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
    if (record.outcome !== 'aborted' || record.cost > 0n) this.hangUps.remove(record.key, record.operationId);
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
   * Asked once when a client leaves: did its key leave so often before its counters, or take so much of what it spends,
   * that this answer is read to its end? By key, as decided (inference-gateway.md, 4): keys are minted by the operator.
   */
  async isInDrainMode(key: string, account: string, operation: string): Promise<boolean> {
    if (!this.hangUps.add(key, operation)) return true;
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
        tx.query<{ recent: bigint; is_above: boolean }>(
          `select coalesce(bool_or(aborts > $4::integer and forgone::numeric * ${share} > spent), false) as is_above,
             (select count(*) from request_log
               where key_id = $1::uuid and outcome = 'aborted' and cost = 0 and ended_at > now() - interval '1 hour') as recent
           from key_month where key_id = $1::uuid and account_id = $3::uuid and month = $2`,
          [key, monthOf(new Date()), account, freeAborts],
        ),
      account,
    );
    return row !== undefined && (row.is_above || Number(row.recent) > freeAborts);
  }

  private async insert(rows: readonly RequestRecord[]): Promise<void> {
    try {
      await this.database.named('request-log-write', write, [...columnsOf(rows), ...monthsOf(rows)]);
    } catch (err) {
      this.runtime.log.warn({ err, rows: rows.length }, 'rows of the request log are lost');
    }
  }
}

/** Columns of rows, in the order of the parameters of `request_log_write`. */
const columns: readonly ((row: RequestRecord) => string | number | bigint | boolean | null | undefined)[] = [
  (row) => row.operationId,
  (row) => row.requestId,
  (row) => row.account,
  (row) => row.key,
  (row) => row.format,
  (row) => row.model,
  (row) => row.upstream,
  (row) => row.streamed,
  (row) => row.status,
  (row) => row.outcome,
  (row) => row.finish,
  (row) => row.counters?.input,
  (row) => row.counters?.cached,
  (row) => row.counters?.output,
  (row) => row.counters?.reasoning,
  (row) => row.priceVersion,
  (row) => row.cost,
  (row) => row.startedAt.getTime(),
  (row) => row.firstByteAt?.getTime(),
  (row) => row.endedAt.getTime(),
];
/** Columns of `key_month`. */
const monthColumns = 6;
const parameters = Array.from({ length: columns.length + monthColumns }, (_, index) => `$${index + 1}`);
const write = `select request_log_write(${parameters.join(', ')})`;

const columnsOf = (rows: readonly RequestRecord[]): SqlValue[] =>
  columns.map((column) => sqlArray(rows.map(column)));

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
    sqlArray(all.map(({ key }) => key)),
    sqlArray(all.map(({ account }) => account)),
    sqlArray(all.map(({ month }) => month)),
    sqlArray(all.map(({ spent }) => spent)),
    sqlArray(all.map(({ forgone }) => forgone)),
    sqlArray(all.map(({ aborts }) => aborts)),
  ];
}
