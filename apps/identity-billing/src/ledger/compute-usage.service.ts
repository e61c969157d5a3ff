import { Injectable } from '@nestjs/common';
import type { ComputeUsageCharge, ComputeUsageRequest } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { guardedError } from '../database/guarded.js';
import { timeOf } from './spans.service.js';

interface UsageRow {
  operation_id: string;
  cpu_included_us: bigint;
  memory_included_mb_ms: bigint;
  amount: bigint;
}

/** Charges what apps use on demand: a plan's allowance first, then money. One guarded statement, all or nothing. */
@Injectable()
export class ComputeUsageService {
  constructor(private readonly database: Database) {}

  /**
   * Takes a part of an app's hour; a repeat answers what the first answered.
   * @param service the service that asks; stands in the ledger
   * @throws ApiError 404 unknown account; 409 `operation_reused`; 422; 503
   */
  async charge(service: string, request: ComputeUsageRequest): Promise<ComputeUsageCharge> {
    try {
      const [row] = await this.database.named<UsageRow>(
        'compute-charge',
        `select operation_id, cpu_included_us, memory_included_mb_ms, amount
         from compute_charge($1::uuid, $2, $3, $4::uuid, $5, $6::timestamptz, $7::bigint, $8::bigint, $9, $10)`,
        [
          request.account_id,
          request.operation_id,
          service,
          request.app_id,
          request.kind,
          timeOf('hour', request.hour),
          request.cpu_us.toString(),
          request.memory_mb_ms,
          request.free,
          request.description,
        ],
      );
      return {
        operation_id: row!.operation_id,
        cpu_included_us: Number(row!.cpu_included_us),
        memory_included_mb_ms: row!.memory_included_mb_ms.toString(),
        amount: row!.amount.toString(),
      };
    } catch (error) {
      throw guardedError(error);
    }
  }
}
