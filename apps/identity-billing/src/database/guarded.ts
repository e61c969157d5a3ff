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
  project_busy: 'the project is being deleted; try again',
  price_changed: 'a price has changed since it was read',
  operation_reused: 'this operation id was used for something else',
  already_closed: 'the span was closed with another end',
  fenced: 'another life of this router has begun: end this process',
  slice_in_use: 'its term is not over: the router still holds requests from it',
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
 * @param isForRouter a 402 carries its figures (`SliceRefusal`)
 */
export function guardedError(error: unknown, needed: bigint = 0n, isForRouter = false): ApiError {
  if (error instanceof ApiError) return error;
  const { code, message, detail } = error as PgError;
  switch (code) {
    case codes.refused:
      return refusal(message, JSON.parse(detail ?? '{}') as Figures, needed, isForRouter);
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

/**
 * Whether money that routers have leased would have covered what was refused.
 * @returns the key whose limit is short, or null for the account's money, and whether they do not even use what it takes, as
 *   far as is known; undefined when no recall would help
 */
export function recallable(error: unknown): { key: string | null; isIdle: boolean } | undefined {
  if (sqlStateOf(error) !== codes.refused) return undefined;
  const { recall, recall_key: key } = JSON.parse((error as PgError).detail ?? '{}') as Figures;
  return recall ? { key: key ?? null, isIdle: recall === 'idle' } : undefined;
}

/** What the guarded functions tell with a refusal: 10⁻⁹ rubles. */
interface Figures {
  available?: string;
  held?: string;
  key_available?: string;
  limit?: string;
  spent?: string;
  recall?: 'idle' | 'leased' | null;
  recall_key?: string;
}

function refusal(reason: string, figures: Figures, needed: bigint, isForRouter: boolean): ApiError {
  const { available, held, key_available } = figures;
  const details = { available, held, ...(key_available === undefined ? {} : { key_available }) };
  const more = isForRouter ? { fields: { details } } : {};
  const rubles = (text: string | undefined) => `${formatRubles(BigInt(text ?? '0'))} ₽`;
  const need = `${formatRubles(needed)} ₽ needed`;
  switch (reason) {
    case 'topup_required':
      return new ApiError(
        402,
        reason,
        'models are paid with paid-in money: the account has had no real top-up yet',
        more,
      );
    case 'key_limit_reached':
      return new ApiError(
        402,
        reason,
        `the key's monthly limit of ${rubles(figures.limit)} is reached: ${rubles(figures.spent)} spent, ${need}`,
        more,
      );
    case 'held_in_flight': {
      const state = figures.limit
        ? `limit ${rubles(figures.limit)}`
        : `${rubles(available)} available, ${rubles(held)} held`;
      return new ApiError(
        402,
        reason,
        `the account's own requests in flight hold the money: ${state}, ${need}; try again when they end`,
        { ...more, headers: { 'retry-after': '2' } },
      );
    }
    default:
      return new ApiError(
        402,
        'insufficient_balance',
        `not enough money: ${rubles(available)} available, ${need}`,
        more,
      );
  }
}
