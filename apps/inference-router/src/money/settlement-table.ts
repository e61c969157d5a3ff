import { Injectable } from '@nestjs/common';
import type { Nano, UsageFacts } from '@nebo/contracts';
import { Database } from '@nebo/persistence';

/** A decided end of a request that identity-billing has not taken yet. */
export interface DueSettlement {
  operation_id: string;
  account_id: string;
  state: 'capture' | 'void';
  amount: bigint | null;
  usage: UsageFacts | null;
  attempts: number;
}

const dueFields = 'operation_id, account_id, state, amount, usage, attempts';

/** The statements on table `settlement`. */
@Injectable()
export class SettlementTable {
  constructor(private readonly database: Database) {}

  /** The row that outlives this process, before anything is held. */
  async open(
    operationId: string,
    account: string,
    held: Nano,
    owner: string,
    leaseSeconds: number,
  ): Promise<void> {
    await this.database.transaction(
      (tx) =>
        tx.query(
          `insert into settlement (operation_id, account_id, state, held, owner, lease_until)
           values ($1::uuid, $2::uuid, 'open', $3, $4::uuid, now() + make_interval(secs => $5))`,
          [operationId, account, held, owner, leaseSeconds],
        ),
      account,
    );
  }

  /** Forgets a request whose hold was refused: there is nothing to settle. */
  async forget(operationId: string, account: string): Promise<void> {
    await this.database.transaction(
      (tx) =>
        tx.query("delete from settlement where operation_id = $1::uuid and state = 'open'", [operationId]),
      account,
    );
  }

  /**
   * Decides the end of an open request. Its delivery belongs to the caller for `graceSeconds`, afterwards to any worker.
   * @returns false when it was decided before
   */
  async decide(
    operationId: string,
    account: string,
    end: { amount: Nano; usage: UsageFacts } | null,
    graceSeconds: number,
  ): Promise<boolean> {
    const rows = await this.database.transaction(
      (tx) =>
        tx.query(
          `update settlement set state = $2, amount = $3, usage = $4::jsonb, settled_at = now(),
             next_attempt_at = now() + make_interval(secs => $5)
           where operation_id = $1::uuid and state = 'open' returning 1`,
          [
            operationId,
            end ? 'capture' : 'void',
            end?.amount ?? null,
            end ? JSON.stringify(end.usage) : null,
            graceSeconds,
          ],
        ),
      account,
    );
    return rows.length > 0;
  }

  /** identity-billing has taken it, or (with words) never will. */
  async finish(operationId: string, account: string, refusal: string | null): Promise<void> {
    await this.database.transaction(
      (tx) =>
        tx.query(
          `update settlement set state = $2, error = $3, delivered_at = now() where operation_id = $1::uuid and state in ('capture', 'void')`,
          [operationId, refusal === null ? 'done' : 'refused', refusal],
        ),
      account,
    );
  }

  /** Takes what is due; nobody else gets it for `claimSeconds`. */
  async claim(limit: number, claimSeconds: number): Promise<DueSettlement[]> {
    return this.database.transaction((tx) =>
      tx.query<DueSettlement>(
        `update settlement set attempts = attempts + 1, next_attempt_at = now() + make_interval(secs => $2)
         where operation_id in (
           select operation_id from settlement where state in ('capture', 'void') and next_attempt_at <= now()
           order by next_attempt_at limit $1 for update skip locked)
         returning ${dueFields}`,
        [limit, claimSeconds],
      ),
    );
  }

  /** When to try again what could not be delivered. */
  async postpone(operationId: string, account: string, seconds: number, error: string): Promise<void> {
    await this.database.transaction(
      (tx) =>
        tx.query(
          'update settlement set next_attempt_at = now() + make_interval(secs => $2), error = $3 where operation_id = $1::uuid',
          [operationId, seconds, error.slice(0, 500)],
        ),
      account,
    );
  }

  /** This process is alive, and so are its open requests. */
  async renew(owner: string, leaseSeconds: number): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query(
        "update settlement set lease_until = now() + make_interval(secs => $2) where state = 'open' and owner = $1::uuid",
        [owner, leaseSeconds],
      ),
    );
  }

  /**
   * Requests of processes that are gone: their answers were cut off, so they are free.
   * @returns how many there were
   */
  async voidAbandoned(owner: string): Promise<number> {
    const rows = await this.database.transaction((tx) =>
      tx.query(
        `update settlement set state = 'void', settled_at = now(), next_attempt_at = now(), error = 'the process that ran it is gone'
         where state = 'open' and lease_until < now() and owner <> $1::uuid returning 1`,
        [owner],
      ),
    );
    return rows.length;
  }

  /** Drops what has been delivered for a week. */
  async prune(): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query("delete from settlement where state = 'done' and delivered_at < now() - interval '7 days'"),
    );
  }
}
