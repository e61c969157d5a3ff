import { Inject, Injectable } from '@nestjs/common';
import { formatRubles, type SliceSettleAnswer } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { guardedError, sqlStateOf } from '../database/guarded.js';
import { BillingMetrics } from '../observe/billing-metrics.js';
import { listsOf, readSettlement, type SettlementRow, sliceSettle } from './settlement.js';

interface Outcome {
  /** Place in the lists that were sent, from 1. */
  ord: bigint;
  outcome: 'account' | 'key' | 'lost';
  lost: bigint;
}

interface Decided {
  row: SettlementRow;
  outcome: string;
}

const reasons = { account: 'unknown account', key: 'the account has no such key' } as const;

/** Charges the ends of requests that routers report: once each, and never beyond what the account has. */
@Injectable()
export class SettleService {
  constructor(
    private readonly database: Database,
    private readonly metrics: BillingMetrics,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log'>,
  ) {}

  /**
   * Settles a batch in one transaction. A row that is wrong stops no other: it is refused, for good.
   * @param service the service that settles; stands in the ledger
   * @param given whatever stood in the list of the request
   * @throws ApiError 503: nothing was decided, or not everything; come again
   */
  async settle(service: string, router: string, given: readonly unknown[]): Promise<SliceSettleAnswer> {
    const refused: SliceSettleAnswer['refused'] = [];
    const rows: SettlementRow[] = [];
    given.forEach((one, ord) => {
      const read = readSettlement(one, ord);
      if ('reason' in read) refused.push(read);
      else rows.push(read);
    });
    const settled: string[] = [];
    try {
      const decided: Decided[] = [];
      for (let left = rows; left.length > 0;) {
        const { firsts, repeats } = firstsOf(left);
        decided.push(...(await this.decide(service, router, firsts)));
        left = repeats;
      }
      decided.sort((a, b) => a.row.ord - b.row.ord);
      for (const { row, outcome } of decided) {
        if (outcome === 'settled') settled.push(row.operation_id);
        else refused.push({ operation_id: row.operation_id, reason: outcome });
      }
    } catch (error) {
      throw guardedError(error);
    }
    this.metrics.settlements('settled', settled.length);
    if (refused.length > 0) {
      this.metrics.settlements('refused', refused.length);
      this.runtime.log.error({ router, refused: refused.slice(0, 20) }, 'settlements were refused');
    }
    return { settled, refused };
  }

  private async decide(service: string, router: string, rows: readonly SettlementRow[]): Promise<Decided[]> {
    if (rows.length === 0) return [];
    let outcomes: Outcome[];
    try {
      outcomes = await this.database.named<Outcome>(
        'slice-settle',
        `select ord, outcome, lost from ${sliceSettle}`,
        [router, service, ...listsOf(rows)],
      );
    } catch (error) {
      // Errors of the data (SQLSTATE classes 22 and 23) come again with every try: find the row that makes them.
      if (!/^2[23]/.test(sqlStateOf(error) ?? '')) throw error;
      if (rows.length === 1) return [{ row: rows[0]!, outcome: (error as Error).message }];
      const decided = [];
      for (const row of rows) decided.push(...(await this.decide(service, router, [row])));
      return decided;
    }
    const decided: Decided[] = rows.map((row) => ({ row, outcome: 'settled' }));
    for (const { ord, outcome, lost } of outcomes) {
      const one = decided[Number(ord) - 1]!;
      if (outcome === 'lost') this.tellLoss(router, one.row, lost);
      else one.outcome = reasons[outcome];
    }
    return decided;
  }

  private tellLoss(router: string, row: SettlementRow, lost: bigint): void {
    const { account_id, operation_id, slice_id, amount } = row;
    this.metrics.settlementsLost(Number(lost) / 1e9);
    this.runtime.log.error(
      { router, account_id, operation_id, slice_id, amount, lost: formatRubles(lost) },
      'a request was settled with no money left for it: the loss is the operator’s',
    );
  }
}

/** Rows whose operation stands in the batch for the first time, and those that repeat one of these. */
function firstsOf(rows: readonly SettlementRow[]): { firsts: SettlementRow[]; repeats: SettlementRow[] } {
  const seen = new Set<string>();
  const firsts: SettlementRow[] = [];
  const repeats: SettlementRow[] = [];
  for (const row of rows) {
    const name = `${row.account_id} ${row.operation_id}`;
    (seen.has(name) ? repeats : firsts).push(row);
    seen.add(name);
  }
  return { firsts, repeats };
}
