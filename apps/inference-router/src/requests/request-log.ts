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
/** Unbilled aborts of a key in an hour, above which its later aborts are read to their counters (inference-gateway.md, 4). */
export const freeAborts = 5;

/** The log of requests: what was asked of which model by which key, how it ended, what it cost. */
@Injectable()
export class RequestLog implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private rows: RequestRecord[] = [];
  private timer: NodeJS.Timeout | undefined;
  private pruner: NodeJS.Timeout | undefined;
  private writing: Promise<void> = Promise.resolve();

  constructor(
    private readonly database: Database,
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

  /** Notes a request; it is in the table within a moment. A lost row is no lost money. */
  write(record: RequestRecord): void {
    this.rows.push(record);
    if (this.rows.length >= mostRows) void this.flush();
    else this.timer ??= setTimeout(() => void this.flush(), gather).unref();
  }

  /** Writes what waits. */
  async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const rows = this.rows.splice(0);
    if (rows.length > 0) this.writing = this.writing.then(() => this.insert(rows));
    await this.writing;
  }

  /** Did the key leave so often before its counters that its next abort is read to the end? */
  async isInDrainMode(key: string, account: string): Promise<boolean> {
    await this.flush();
    const [row] = await this.database.transaction(
      (tx) =>
        tx.query<{ aborts: bigint }>(
          `select count(*) as aborts from request_log
           where key_id = $1::uuid and outcome = 'aborted' and cost = 0 and ended_at > now() - interval '1 hour'`,
          [key],
        ),
      account,
    );
    return Number(row?.aborts ?? 0) > freeAborts;
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
      await this.database.transaction((tx) =>
        tx.query(
          `insert into request_log (${columns.join(', ')}) values ${tuples.join(', ')} on conflict do nothing`,
          values,
        ),
      );
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
