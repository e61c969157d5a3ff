import { Injectable } from '@nestjs/common';
import { formatRubles, type Nano } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { AuditService } from '../audit/audit.service.js';
import { guardedError } from '../database/guarded.js';
import { Settings } from '../settings.js';
import { StandingService } from '../standing/standing.service.js';

/** Money that comes from outside: a real top-up or a bonus. */
export interface Deposit {
  account: string;
  kind: 'topup' | 'credit';
  /** 10⁻⁹ rubles, above zero. */
  amount: Nano;
  service: string;
  /** Unique per service and kind: a repeat posts nothing. */
  sourceId: string;
  actor: string;
}

/** Posts top-ups and bonuses. */
@Injectable()
export class DepositsService {
  constructor(
    private readonly database: Database,
    private readonly audit: AuditService,
    private readonly settings: Settings,
    private readonly standing: StandingService,
  ) {}

  /**
   * Posts in the caller's transaction, with its audit entry.
   * @returns the transfer, and whether it was posted by this call
   */
  async post(tx: Sql, deposit: Deposit): Promise<{ transfer_id: string; fresh: boolean }> {
    const { account, kind, amount, service, sourceId, actor } = deposit;
    const description = kind === 'topup' ? 'Top-up' : 'Bonus credits';
    const [row] = await tx.query<{ transfer_id: string; fresh: boolean }>(
      'select transfer_id, fresh from money_deposit($1::uuid, $2, $3::bigint, $4, $5, $6, $7::bigint)',
      [
        account,
        kind,
        amount.toString(),
        service,
        sourceId,
        description,
        this.settings.realTopupMin.toString(),
      ],
    );
    if (row!.fresh) {
      await this.audit.write(tx, {
        account,
        actor,
        action: kind === 'topup' ? 'account topup' : 'account credits',
        resource: `account:${account}`,
        details: { amount: formatRubles(amount), transfer_id: row!.transfer_id },
      });
    }
    return row!;
  }

  /**
   * Posts in a transaction of its own.
   * @throws ApiError 404 for an unknown account; 409 `operation_reused`; 422 for more than the ledger can hold; 503
   */
  async deposit(deposit: Deposit): Promise<{ transfer_id: string; fresh: boolean }> {
    try {
      const posted = await this.database.transaction((tx) => this.post(tx, deposit), deposit.account);
      // What was stopped goes on at once; should this be lost, the next comparison finds it.
      await this.standing.sweep(deposit.account).catch(() => undefined);
      return posted;
    } catch (error) {
      throw guardedError(error);
    }
  }
}
