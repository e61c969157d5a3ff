import { Injectable } from '@nestjs/common';
import {
  formatRubles,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1Balance,
  type V1LedgerEntry,
} from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { billingUnavailable } from '@nebo/service-kit';
import { PrismaService } from '../database/prisma.service.js';
import { Settings } from '../settings.js';
import { ledgerEntry } from './ledger.mapper.js';

interface BalanceRow {
  posted: bigint;
  held: bigint;
  /** What routers have leased and use. */
  in_use: bigint;
  credits: bigint;
  credits_held: bigint;
  unlocked: boolean;
}

/** Reads of an account's money. What cannot be read is 503, never zero. */
@Injectable()
export class BalanceService {
  constructor(
    private readonly database: Database,
    private readonly prisma: PrismaService,
    private readonly settings: Settings,
  ) {}

  /** @throws ApiError 503 `billing_unavailable`, also for an account without a balance row */
  async read(account: string): Promise<V1Balance> {
    let row: BalanceRow | undefined;
    try {
      [row] = await this.database.named<BalanceRow>(
        'balance-figures',
        'select * from balance_figures($1::uuid)',
        [account],
      );
    } catch (cause) {
      throw billingUnavailable(cause);
    }
    if (!row) throw billingUnavailable(new Error(`account ${account} has no balance`));
    const spendable = row.unlocked ? row.credits - row.credits_held : 0n;
    return {
      currency: 'RUB',
      balance: formatRubles(row.posted),
      credits: formatRubles(row.credits),
      credits_unlocked: row.unlocked,
      available: formatRubles(row.posted - row.held - row.in_use + spendable),
      real_topup_min: row.unlocked ? '0' : formatRubles(this.settings.realTopupMin),
    };
  }

  /** Postings of an account, newest first. @throws ApiError 503 */
  async ledger(account: string, page: PageQuery): Promise<PageOf<V1LedgerEntry>> {
    try {
      return await this.prisma.forAccount(account, async (tx) => {
        const where = { account_id: account };
        const total = await tx.transfer.count({ where });
        const rows = await tx.transfer.findMany({
          where,
          include: { lines: true },
          orderBy: { seq: 'desc' },
          skip: page.offset,
          take: page.limit,
        });
        return pageOf(rows.map(ledgerEntry), total, page);
      });
    } catch (cause) {
      throw billingUnavailable(cause);
    }
  }
}
