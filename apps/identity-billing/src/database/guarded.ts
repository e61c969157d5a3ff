import { formatRubles } from '@nebo/contracts';
import { ApiError, billingUnavailable, conflict, fieldError, referenceNotFound } from '@nebo/service-kit';

/** Raised by the guarded functions when a concurrent double of the same operation was there first: look again. */
export const lookAgain = 'NB001';

/** Codes that the guarded functions of the migrations raise, and what PostgreSQL says of itself here. */
const codes = {
  refused: 'NB402',
  absent: 'NB404',
  conflict: 'NB409',
  wrong: 'NB422',
  tooLarge: '22003',
  noSuchParent: '23503',
} as const;

const conflicts: Readonly<Record<string, string>> = {
  operation_reused: 'this operation id was used for something else',
  already_closed: 'the span was closed with another end',
};

const wrongs: Readonly<Record<string, string>> = {
  amount: 'more than was reserved or charged',
  ended_at: 'before the beginning',
};

interface PgError {
  code?: string;
  message: string;
  detail?: string;
}

/** The SQLSTATE of an error, whichever way it came. */
export const sqlStateOf = (error: unknown): string | undefined => (error as PgError | null)?.code;

/**
 * What a guarded statement refused, as the answer it stands for. Anything else means that the balance could not be read
 * or written: 503, never zero and never "not enough" (design.md, 4).
 * @param needed the amount that was asked for, 10⁻⁹ rubles
 */
export function guardedError(error: unknown, needed: bigint = 0n): ApiError {
  if (error instanceof ApiError) return error;
  const { code, message, detail } = error as PgError;
  switch (code) {
    case codes.refused:
      return refusal(message, detail ?? '{}', needed);
    case codes.absent:
      return referenceNotFound(message);
    case codes.noSuchParent:
      return referenceNotFound('account_id');
    case codes.conflict:
      return conflict(message, conflicts[message] ?? message);
    case codes.wrong:
      return fieldError(message, wrongs[message] ?? 'wrong value');
    case codes.tooLarge:
      return fieldError('amount', 'too large');
    default:
      return billingUnavailable(error);
  }
}

/** True for a refusal that an expiry of own holds could lift. */
export const isRefusedForHolds = (error: unknown): boolean =>
  sqlStateOf(error) === codes.refused &&
  ['insufficient_balance', 'held_in_flight'].includes((error as PgError).message);

function refusal(reason: string, detail: string, needed: bigint): ApiError {
  const figures = JSON.parse(detail) as { available?: string; held?: string; limit?: string; spent?: string };
  const rubles = (text: string | undefined) => `${formatRubles(BigInt(text ?? '0'))} ₽`;
  const need = `${formatRubles(needed)} ₽ needed`;
  switch (reason) {
    case 'topup_required':
      return new ApiError(
        402,
        reason,
        'models are paid with paid-in money: the account has had no real top-up yet',
      );
    case 'key_limit_reached':
      return new ApiError(
        402,
        reason,
        `the key's monthly limit of ${rubles(figures.limit)} is reached: ${rubles(figures.spent)} spent, ${need}`,
      );
    case 'held_in_flight': {
      const held = figures.held
        ? `${rubles(figures.available)} available, ${rubles(figures.held)} held`
        : `limit ${rubles(figures.limit)}`;
      return new ApiError(
        402,
        reason,
        `the account's own requests in flight hold the money: ${held}, ${need}; try again when they end`,
        {
          headers: { 'retry-after': '2' },
        },
      );
    }
    default:
      return new ApiError(
        402,
        'insufficient_balance',
        `not enough money: ${rubles(figures.available)} available, ${need}`,
      );
  }
}
