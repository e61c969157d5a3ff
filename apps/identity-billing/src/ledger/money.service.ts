import { Injectable } from '@nestjs/common';
import type {
  CaptureRequest,
  RefundRequest,
  Reservation,
  ReserveRequest,
  VoidRequest,
} from '@nebo/contracts';
import { Database, type SqlValue } from '@nebo/persistence';
import { conflict } from '@nebo/service-kit';
import { Recalls } from '../slices/recalls.js';
import { guardedError, isRefusedForHolds, lookAgain, sqlStateOf } from '../database/guarded.js';

interface ReservationRow {
  operation_id: string;
  amount: bigint;
  state: Reservation['state'];
  captured: bigint;
  refunded: bigint;
  expires_at: Date;
}

const columns = 'operation_id, amount, state, captured, refunded, expires_at';

/**
 * Reservations. Each call is one guarded statement (a function of the migrations), so that it is all or nothing and two
 * of them never spend the same ruble. All are idempotent by account and operation id.
 */
@Injectable()
export class MoneyService {
  constructor(
    private readonly database: Database,
    private readonly recalls: Recalls,
  ) {}

  /**
   * Takes an amount out of what is available.
   * @param service the service that asks; stands in the ledger
   * @throws ApiError 402 `insufficient_balance`, `topup_required`, `key_limit_reached`, `held_in_flight` (with
   *   Retry-After); 404 unknown account, key or project; 409 `operation_reused`, `project_busy`, `price_changed`; 503
   *   `billing_unavailable`
   */
  async reserve(service: string, request: ReserveRequest): Promise<Reservation> {
    const values: SqlValue[] = [
      request.account_id,
      request.operation_id,
      service,
      request.kind,
      request.key_id ?? null,
      request.amount,
      request.description,
      request.prices ? JSON.stringify(request.prices) : null,
      request.expires_in_seconds ?? 60,
    ];
    const given = '$1::uuid, $2, $3, $4, $5::uuid, $6::bigint, $7, $8::jsonb, $9::integer';
    const { project_id } = request;
    const reserve = () =>
      project_id === undefined
        ? this.one('money-reserve', `select ${columns} from money_reserve(${given})`, values)
        : this.one('money-order', `select ${columns} from money_order(${given}, $10::uuid)`, [
            ...values,
            project_id,
          ]);
    try {
      return await this.recalls.patiently(request.account_id, null, () =>
        this.withoutExpired(request.account_id, reserve),
      );
    } catch (error) {
      throw guardedError(error, BigInt(request.amount));
    }
  }

  /** Runs a guarded statement again when only holds whose time is over, which no sweep has met yet, stand in the way. */
  async withoutExpired<T>(account: string, work: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await work();
      } catch (error) {
        const again =
          attempt < 4 &&
          (sqlStateOf(error) === lookAgain ||
            (isRefusedForHolds(error) && (await this.expire(account).catch(() => 0)) > 0));
        if (!again) throw error;
      }
    }
  }

  /**
   * Charges at most what was reserved and gives back the rest.
   * @throws ApiError 404; 409 `already_captured` (with another amount), `already_void`, `expired`; 422 for more than was
   *   reserved; 503
   */
  async capture(request: CaptureRequest): Promise<Reservation> {
    const { usage } = request;
    const reservation = await this.guarded(
      'money-capture',
      `select ${columns} from money_capture($1::uuid, $2, $3::bigint, $4, $5::jsonb)`,
      [
        request.account_id,
        request.operation_id,
        request.amount ?? null,
        request.description ?? null,
        usage ? JSON.stringify(usage) : null,
      ],
    );
    const wanted = request.amount ?? reservation.amount;
    if (reservation.state === 'captured' && reservation.captured === BigInt(wanted).toString())
      return reservation;
    throw resolved(reservation);
  }

  /** Gives everything back; safe to repeat. @throws ApiError 404; 409 `already_captured`; 503 */
  async void(request: VoidRequest): Promise<Reservation> {
    const reservation = await this.guarded('money-void', `select ${columns} from money_void($1::uuid, $2)`, [
      request.account_id,
      request.operation_id,
    ]);
    if (reservation.state === 'captured') throw resolved(reservation);
    return reservation;
  }

  /**
   * Pays back what was captured, once, by a new transfer.
   * @throws ApiError 404; 409 `not_captured`, `already_refunded` (with another amount); 422 for more than was captured; 503
   */
  async refund(request: RefundRequest): Promise<Reservation> {
    const reservation = await this.guarded(
      'money-refund',
      `select ${columns} from money_refund($1::uuid, $2, $3::bigint, $4)`,
      [request.account_id, request.operation_id, request.amount ?? null, request.description],
    );
    if (reservation.state !== 'captured')
      throw conflict('not_captured', `the reservation is ${reservation.state}, nothing was charged`);
    const wanted = BigInt(request.amount ?? reservation.captured).toString();
    if (reservation.refunded !== wanted)
      throw conflict('already_refunded', 'the charge was paid back with another amount');
    return reservation;
  }

  /**
   * Expires reservations whose time is over, of one account or of all; several may run at once.
   * @returns how many, at most 100
   */
  async expire(account: string | null = null): Promise<number> {
    const [row] = await this.database.query<{ count: number }>(
      'select money_expire($1::uuid, 100) as count',
      [account],
    );
    return row!.count;
  }

  private async guarded(name: string, text: string, values: SqlValue[]): Promise<Reservation> {
    try {
      return await this.one(name, text, values);
    } catch (error) {
      throw guardedError(error);
    }
  }

  private async one(name: string, text: string, values: SqlValue[]): Promise<Reservation> {
    const [row] = await this.database.named<ReservationRow>(name, text, values);
    return {
      operation_id: row!.operation_id,
      amount: row!.amount.toString(),
      state: row!.state,
      captured: row!.captured.toString(),
      refunded: row!.refunded.toString(),
      expires_at: row!.expires_at.toISOString(),
    };
  }
}

function resolved(reservation: Reservation) {
  switch (reservation.state) {
    case 'expired':
      return conflict('expired', `the reservation expired at ${reservation.expires_at}`);
    case 'void':
      return conflict('already_void', 'the reservation was given back');
    default:
      return conflict('already_captured', `the reservation was captured with ${reservation.captured}`);
  }
}
