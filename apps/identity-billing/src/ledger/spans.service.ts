import { Injectable } from '@nestjs/common';
import type { SpanCloseRequest, SpanOpenRequest, SpanState } from '@nebo/contracts';
import { Database, type SqlValue } from '@nebo/persistence';
import { fieldError } from '@nebo/service-kit';
import { guardedError } from '../database/guarded.js';
import { Recalls } from '../slices/recalls.js';

interface SpanRow {
  operation_id: string;
  resource: string;
  started_at: Date;
  ended_at: Date | null;
  charged_until: Date;
  charged: bigint;
}

const columns = 'operation_id, resource, started_at, ended_at, charged_until, charged';
/** How far another service's clock may be ahead, milliseconds. */
const clockSkewMs = 60_000;

/**
 * Spans of what lasts: open while it is active, charged hour by hour (UTC), exactly once by construction. Only they may
 * take a balance below zero.
 */
@Injectable()
export class SpansService {
  constructor(
    private readonly database: Database,
    private readonly recalls: Recalls,
  ) {}

  /**
   * Opens a span; a repeat answers how it stands.
   * @throws ApiError 402 when less than `needs_available` is available; 404 unknown account; 409 `operation_reused`; 422; 503
   */
  async open(service: string, request: SpanOpenRequest): Promise<SpanState> {
    return this.one(
      request.account_id,
      'span-open',
      `select ${columns} from span_open($1::uuid, $2, $3, $4, $5::bigint, $6::timestamptz, $7, $8::jsonb, $9::bigint, $10::bigint)`,
      [
        request.account_id,
        request.operation_id,
        service,
        request.resource,
        request.amount_per_month,
        timeOf('started_at', request.started_at),
        request.description,
        request.prices ? JSON.stringify(request.prices) : null,
        request.needs_available ?? null,
        request.amount_per_hour ?? '0',
      ],
      BigInt(request.needs_available ?? 0),
    );
  }

  /**
   * Ends a span and charges the exact rest; what was charged beyond its end is paid back.
   * @throws ApiError 404; 409 `already_closed` with another end; 422 for an end before the beginning; 503
   */
  async close(request: SpanCloseRequest): Promise<SpanState> {
    return this.one(
      request.account_id,
      'span-close',
      `select ${columns} from span_close($1::uuid, $2, $3::timestamptz)`,
      [request.account_id, request.operation_id, timeOf('ended_at', request.ended_at)],
    );
  }

  /**
   * Charges every full hour of open spans that is not charged yet; several may run at once.
   * @param now for tests; the database's time when absent
   * @returns how many hours were charged
   */
  async chargeDue(now: Date | null = null): Promise<number> {
    for (let total = 0; ;) {
      const [row] = await this.database.query<{ hours: number }>(
        'select span_charge_due(coalesce($1::timestamptz, clock_timestamp()), 20, 100) as hours',
        [now],
      );
      total += row!.hours;
      if (row!.hours === 0) return total;
    }
  }

  private async one(
    account: string,
    name: string,
    text: string,
    values: SqlValue[],
    needed = 0n,
  ): Promise<SpanState> {
    try {
      const [row] = await this.recalls.patiently(account, null, () =>
        this.database.named<SpanRow>(name, text, values),
      );
      return {
        operation_id: row!.operation_id,
        resource: row!.resource,
        started_at: row!.started_at.toISOString(),
        ended_at: row!.ended_at?.toISOString() ?? null,
        charged_until: row!.charged_until.toISOString(),
        charged: row!.charged.toString(),
      };
    } catch (error) {
      throw guardedError(error, needed);
    }
  }
}

/** RFC 3339 with a zone, not in the future. Milliseconds are kept. @throws ApiError 422 naming the field */
export function timeOf(field: string, text: string): Date {
  const wellFormed = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/i.test(text);
  const at = new Date(text);
  if (!wellFormed || Number.isNaN(at.getTime()))
    throw fieldError(field, 'must be a time in RFC 3339 with a zone');
  if (at.getTime() > Date.now() + clockSkewMs) throw fieldError(field, 'lies in the future');
  return at;
}
