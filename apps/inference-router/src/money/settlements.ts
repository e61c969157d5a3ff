import { randomUUID } from 'node:crypto';
import {
  Inject,
  Injectable,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import type { Nano, PriceRef, UsageFacts } from '@nebo/contracts';
import { ApiError, billingUnavailable, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Billing } from './billing.js';
import { type DueSettlement, SettlementTable } from './settlement-table.js';

/** Open requests of a process that has not said for so long that it lives are given up. Seconds. */
const leaseSeconds = 30;
/** How long a request that ends waits for identity-billing to take its settlement, before it goes on without. */
const patience = 1_000;
/** A settlement that a request delivers itself is left alone by workers for so long. Seconds. */
const graceSeconds = 3;
const claimSeconds = 15;
const batch = 20;

/** What is held for a request. */
export interface Hold {
  account: string;
  key: string;
  amount: Nano;
  description: string;
  /** Versions of the prices that the amount was made from. */
  prices: readonly PriceRef[];
}

/**
 * Carries the end of each request to identity-billing exactly once: it is a row before it is a call, whoever finds the
 * row later may deliver it, and the operation id makes a repeat harmless. A process killed at any point leaves either an
 * open row (given back when its lease ends) or a decided one (delivered by the next worker).
 */
@Injectable()
export class Settlements implements OnApplicationBootstrap, BeforeApplicationShutdown {
  /** Names this process in the rows of its requests. */
  private readonly owner = randomUUID();
  private readonly timers: NodeJS.Timeout[] = [];
  private readonly work = new Set<Promise<unknown>>();
  private isDelivering = false;
  private stopped = false;

  constructor(
    private readonly table: SettlementTable,
    private readonly billing: Billing,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log' | 'config'>,
  ) {}

  onApplicationBootstrap(): void {
    const every = (ms: number, what: string, run: () => Promise<unknown>) => {
      const timer = setInterval(() => {
        this.track(run().catch((err: unknown) => this.runtime.log.warn({ err }, `${what} failed`)));
      }, ms);
      this.timers.push(timer.unref());
    };
    every(1_000, 'delivery of settlements', () => this.deliverDue());
    every((leaseSeconds * 1_000) / 3, 'renewal of leases', () => this.renew());
    every(3_600_000, 'pruning of settlements', () => this.table.prune());
    this.track(
      this.renew()
        .then(() => this.deliverDue())
        .catch(() => undefined),
    );
  }

  async beforeApplicationShutdown(): Promise<void> {
    this.stopped = true;
    this.timers.forEach(clearInterval);
    await Promise.allSettled(this.work);
  }

  /**
   * Holds the worst case of a request. An answer may take hours, so the hold lasts a day; it ends with the request.
   * @throws ApiError 402 as identity-billing says it, 503 when it cannot be asked
   */
  async reserve(operationId: string, hold: Hold): Promise<void> {
    const { account, key, amount, description, prices } = hold;
    try {
      await this.table.open(operationId, account, amount, this.owner, leaseSeconds);
    } catch (cause) {
      throw billingUnavailable(cause);
    }
    try {
      await this.billing.reserve({
        operation_id: operationId,
        account_id: account,
        kind: 'inference',
        key_id: key,
        amount: amount.toString(),
        description,
        prices: [...prices],
        expires_in_seconds: 86_400,
      });
    } catch (error) {
      if (error instanceof ApiError && error.status === 402) {
        await this.table.forget(operationId, account).catch(() => undefined);
        throw withRetryAfter(error);
      }
      // Perhaps it was taken and only the answer was lost.
      this.track(this.giveBack(operationId, account));
      throw billingUnavailable(error);
    }
  }

  /**
   * Settles a request at its price. When this returns, the charge is taken, or is a row that will be delivered.
   * @throws ApiError 503 when neither was possible; the hold is given back then
   */
  async capture(operationId: string, account: string, amount: Nano, usage: UsageFacts): Promise<void> {
    const due: DueSettlement = {
      operation_id: operationId,
      account_id: account,
      state: 'capture',
      amount,
      usage,
      attempts: 0,
    };
    let written: boolean;
    try {
      written = await this.table.decide(operationId, account, { amount, usage }, graceSeconds);
    } catch (cause) {
      this.runtime.log.error({ err: cause, operation_id: operationId }, 'a settlement could not be written');
      // Without the row only the ledger itself can keep it.
      if (await this.tryDeliver(due, false)) return;
      throw billingUnavailable(cause);
    }
    if (!written) throw billingUnavailable(new Error(`${operationId} was given up by another process`));
    await this.withPatience(this.tryDeliver(due, true));
  }

  /** Gives a hold back. Never throws: what cannot be written now is given up by its lease. */
  async giveBack(operationId: string, account: string): Promise<void> {
    try {
      if (!(await this.table.decide(operationId, account, null, graceSeconds))) return;
    } catch (err) {
      this.runtime.log.error({ err, operation_id: operationId }, 'a hold could not be given back now');
      return;
    }
    const due: DueSettlement = {
      operation_id: operationId,
      account_id: account,
      state: 'void',
      amount: null,
      usage: null,
      attempts: 0,
    };
    await this.withPatience(this.tryDeliver(due, true));
  }

  /** Delivers everything that is due; called by the timer, and by tests. */
  async deliverDue(): Promise<void> {
    if (this.isDelivering || this.stopped) return;
    this.isDelivering = true;
    try {
      const abandoned = await this.table.voidAbandoned(this.owner);
      if (abandoned > 0)
        this.runtime.log.warn({ abandoned }, 'requests of a process that is gone are given back');
      for (;;) {
        const due = await this.table.claim(batch, claimSeconds);
        const taken = await Promise.all(due.map((one) => this.tryDeliver(one, true)));
        if (due.length < batch || taken.includes(false) || this.stopped) return;
      }
    } finally {
      this.isDelivering = false;
    }
  }

  private renew(): Promise<void> {
    return this.table.renew(this.owner, leaseSeconds);
  }

  /** @returns true when identity-billing has said its last word on it */
  private async tryDeliver(due: DueSettlement, hasRow: boolean): Promise<boolean> {
    const { operation_id: operationId, account_id: account } = due;
    let refusal: string | null = null;
    try {
      await this.deliver(due);
    } catch (error) {
      if (!isFinal(error)) {
        this.runtime.log.warn(
          { err: error, operation_id: operationId },
          'a settlement waits for identity-billing',
        );
        // Doubling from one second to half a minute.
        const wait = Math.min(2 ** due.attempts, 30);
        if (hasRow)
          await this.table
            .postpone(operationId, account, wait, (error as Error).message)
            .catch(() => undefined);
        return false;
      }
      // What was never held needs no giving back.
      if (due.state === 'capture' || error.status !== 404) {
        refusal = `${error.status} ${error.code}: ${error.message}`;
        this.runtime.log.error(
          { operation_id: operationId, refusal, amount: due.amount?.toString() },
          'identity-billing refused a settlement',
        );
      }
    }
    // A lost update here only means a repeat, which identity-billing answers as before.
    if (hasRow)
      await this.table
        .finish(operationId, account, refusal)
        .catch((err: unknown) => this.runtime.log.warn({ err }, 'settlement row'));
    return true;
  }

  private async deliver({ operation_id, account_id, state, amount, usage }: DueSettlement): Promise<void> {
    if (state === 'void') await this.billing.giveBack({ operation_id, account_id });
    else
      await this.billing.capture({
        operation_id,
        account_id,
        amount: String(amount),
        ...(usage ? { usage } : {}),
      });
  }

  private async withPatience(work: Promise<unknown>): Promise<void> {
    this.track(work);
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([work, new Promise((resolve) => (timer = setTimeout(resolve, patience)))]);
    clearTimeout(timer);
  }

  private track(work: Promise<unknown>): void {
    this.work.add(work);
    void work.finally(() => this.work.delete(work));
  }
}

/** Refusals that no repeat will change. */
function isFinal(error: unknown): error is ApiError {
  return error instanceof ApiError && [400, 404, 409, 422].includes(error.status);
}

/** Money that is only held by the account's other requests comes free again; the client may come back. */
function withRetryAfter(error: ApiError): ApiError {
  if (error.code !== 'held_in_flight') return error;
  return new ApiError(402, error.code, error.message, { headers: { 'retry-after': '5' } });
}
