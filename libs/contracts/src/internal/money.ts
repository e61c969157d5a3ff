/**
 * Money operations of identity-billing, `POST /internal/v1/money/<name>`. Amounts are integers of 10⁻⁹ ruble as decimal
 * strings ("1500000000" is 1.50 ₽). Every call is idempotent by `operation_id`: a repeat answers what the first answered.
 */

/** `reserve`: takes `amount` out of what is available. 402 with a reason when it cannot be covered; nothing is made then. */
export interface ReserveRequest {
  /** Usually the id of the resource that is ordered. */
  operation_id: string;
  account_id: string;
  /** `inference` spends paid-in money only, and only after a real top-up; `control` spends unlocked credits first. */
  kind: 'control' | 'inference';
  /** Inference key whose monthly limit counts too. */
  key_id?: string;
  amount: string;
  description: string;
  /** Versions of the prices that the amount was made from; kept with the transfers. */
  prices?: PriceRef[];
  /**
   * Of an order, the project that it goes to: 404 when the account has none such, 409 `project_busy` while it is being deleted,
   * 409 `price_changed` when one of `prices` is not in force any more.
   */
  project_id?: string;
  /** Database time; a reservation that was neither captured nor voided by then is void. Default 60. */
  expires_in_seconds?: number;
}

/** A version of a price. */
export interface PriceRef {
  id: string;
  version: number;
}

/** Answer of `reserve`, `capture`, `void` and `refund`: how the reservation stands now. */
export interface Reservation {
  operation_id: string;
  amount: string;
  state: 'held' | 'captured' | 'void' | 'expired';
  /** What was charged; "0" until captured. */
  captured: string;
  /** What was paid back of it. */
  refunded: string;
  expires_at: string;
}

/**
 * `capture`: charges at most what was reserved; the rest is given back. 409 `already_captured` (with another amount),
 * `already_void` or `expired`.
 */
export interface CaptureRequest {
  operation_id: string;
  account_id: string;
  /** At most the reserved amount; that when absent. */
  amount?: string;
  description?: string;
  /** Tokens of an inference request, for the usage export and the panel. */
  usage?: UsageFacts;
}

/** What a charge was for, counted; goes to the usage record and to Kafka. */
export interface UsageFacts {
  kind: 'inference' | 'compute';
  key_id?: string;
  model?: string;
  price_version?: number;
  input_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
  reasoning_tokens?: number;
}

/** `void`: gives everything back. Safe to repeat; 409 `already_captured`. */
export interface VoidRequest {
  operation_id: string;
  account_id: string;
}

/** `refund`: pays back a captured reservation, once. 409 `not_captured`, `already_refunded` (with another amount). */
export interface RefundRequest {
  operation_id: string;
  account_id: string;
  /** At most what was captured; that when absent. */
  amount?: string;
  description: string;
}

/** `span-open`: what lasts is charged hour by hour from `started_at` until the span is closed. */
export interface SpanOpenRequest {
  /** Id of the span; usually resource id and generation. */
  operation_id: string;
  account_id: string;
  resource: string;
  /** 10⁻⁹ rubles per calendar month. */
  amount_per_month: string;
  /** 10⁻⁹ rubles per hour, charged by the exact time beside the monthly amount. Default 0. */
  amount_per_hour?: string;
  /** RFC 3339. */
  started_at: string;
  description: string;
  prices?: PriceRef[];
  /** 402 when less than this is available: a floating IP needs its whole month, though it is charged by the hour. */
  needs_available?: string;
}

/** `span-close`: charges the exact rest. Safe to repeat with the same end; 409 `already_closed` with another one. */
export interface SpanCloseRequest {
  operation_id: string;
  account_id: string;
  ended_at: string;
}

/** Answer of `span-open` and `span-close`. */
export interface SpanState {
  operation_id: string;
  resource: string;
  started_at: string;
  /** Null while open. */
  ended_at: string | null;
  charged_until: string;
  /** 10⁻⁹ rubles so far. */
  charged: string;
}

/**
 * `compute-usage`: a part of what an app used on demand in one hour. The allowance of the account's plan in that calendar month
 * (UTC) is spent first, the rest is charged at the prices that were in force when the hour began, rounded up once. May take the
 * balance below zero, as spans do. 409 `operation_reused` with other quantities.
 */
export interface ComputeUsageRequest {
  /** App, kind, hour and number of the part. */
  operation_id: string;
  account_id: string;
  app_id: string;
  /** Replicas on demand, or runs of jobs. */
  kind: 'replica' | 'run';
  /** RFC 3339. */
  hour: string;
  /** Active CPU, microseconds. */
  cpu_us: number;
  /** Memory of the processes times the time they ran, MB × milliseconds, as a decimal string. */
  memory_mb_ms: string;
  /** Why something of the hour is free; null: all of it was measured. */
  free: ComputeUsageFree | null;
  /** The beginning of the ledger's line. */
  description: string;
}

/** `cpu_unmeasured`: the hour's CPU is not charged; `simulated`: neither CPU nor memory. */
export type ComputeUsageFree = 'cpu_unmeasured' | 'simulated';

/** Answer of `compute-usage`. */
export interface ComputeUsageCharge {
  operation_id: string;
  /** What the plan's allowance covered. */
  cpu_included_us: number;
  memory_included_mb_ms: string;
  /** 10⁻⁹ rubles that were charged for the rest. */
  amount: string;
}

/** One price of the versioned table. `GET /internal/v1/prices?prefix=model.` */
export interface PriceInfo {
  /** `model.<id>.input`, `model.<id>.cache_read`, `model.<id>.output`, `replica.vcpu.month`, … */
  id: string;
  version: number;
  /** 10⁻⁹ rubles per `unit`. */
  amount: string;
  /** `million tokens`, `month`, `hour`. */
  unit: string;
}

/** `PUT /internal/v1/prices`: new versions of those that changed; the others stay. */
export interface PricesSetRequest {
  prices: { id: string; amount: string; unit: string }[];
}

/** A tariff plan of accounts. `GET /internal/v1/tariff-plans`; its price is `tariff.<id>.month`. */
export interface TariffPlanInfo {
  id: string;
  name: string;
  is_default: boolean;
  /** Hours that are included in each month. */
  active_cpu_hours: number;
  memory_gb_hours: number;
}

/** `POST /internal/v1/money/reconcile`: everything recomputed from the ledger; what differs is reported, never mended. */
export interface ReconcileReport {
  ok: boolean;
  at: string;
  differences: { account_id: string; subject: string; recorded: string; computed: string }[];
}

/** Codes of 402 from `reserve`, told apart for the caller. */
export const moneyRefusals = [
  'insufficient_balance',
  'topup_required',
  'key_limit_reached',
  'held_in_flight',
] as const;
