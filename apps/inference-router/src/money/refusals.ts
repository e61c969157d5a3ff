import { formatRubles, type Nano, type SliceRefusal } from '@nebo/contracts';
import { ApiError } from '@nebo/service-kit';
import type { Tariff } from '../completions/cost.js';

/** Why money was not to be had. */
export type RefusalCode = 'insufficient_balance' | 'topup_required' | 'key_limit_reached' | 'held_in_flight';

const codes: readonly string[] = [
  'insufficient_balance',
  'topup_required',
  'key_limit_reached',
  'held_in_flight',
] satisfies RefusalCode[];

/** A hold was refused. `coverable`: the largest that would be granted now; null where no amount would. */
export class MoneyRefused extends Error {
  constructor(
    readonly code: RefusalCode,
    readonly coverable: Nano | null,
  ) {
    super(code);
    this.name = 'MoneyRefused';
  }
}

/** The code of a 402 of identity-billing; an unknown one counts as the plain case. */
export const refusalCode = (error: ApiError): RefusalCode =>
  codes.includes(error.code) ? (error.code as RefusalCode) : 'insufficient_balance';

/** Figures of a 402 of identity-billing as amounts; null where it sent none. */
export function refusalFigures(
  error: ApiError,
): { available: Nano; held: Nano; keyAvailable: Nano | null } | null {
  const details = error.fields?.['details'] as Partial<SliceRefusal> | undefined;
  if (details?.available === undefined || details.held === undefined) return null;
  const above = (text: string) => {
    const amount = BigInt(text);
    // A debt covers nothing.
    return amount > 0n ? amount : 0n;
  };
  return {
    available: above(details.available),
    held: above(details.held),
    keyAvailable: details.key_available === undefined ? null : above(details.key_available),
  };
}

/** What a refused request was to cost at most, for the words of the refusal. */
export interface Wanted {
  amount: Nano;
  /** Upper bound of the input, tokens. */
  inputBound: number;
  /** Most output, tokens. */
  ceiling: number;
  tariff: Tariff;
}

/** The most output that an amount covers after the input; 0 when it does not cover the input. */
export function affordableOutput(
  coverable: Nano,
  { inputBound, ceiling, tariff }: Omit<Wanted, 'amount'>,
): number {
  const dearest = tariff.cache_read > tariff.input ? tariff.cache_read : tariff.input;
  const rest = coverable * 1_000_000n - BigInt(inputBound) * dearest;
  if (rest < 0n) return 0;
  if (tariff.output === 0n) return ceiling;
  const tokens = rest / tariff.output;
  return tokens > BigInt(ceiling) ? ceiling : Number(tokens);
}

const reasons: Readonly<Record<RefusalCode, string>> = {
  insufficient_balance: 'the balance does not cover this request',
  topup_required: 'models are paid with paid-in money; top up the balance first',
  key_limit_reached: 'the monthly limit of this key does not cover this request',
  held_in_flight:
    'the money for this request is held by other running requests; try again when they have ended',
};

/**
 * The 402 that a client sees: the reason, the most that the request could cost, and the `max_tokens` that would be covered
 * now, also as field `affordable_max_tokens`.
 */
export function refusalAnswer({ code, coverable }: MoneyRefused, wanted: Wanted): ApiError {
  const headers: Record<string, string> = code === 'held_in_flight' ? { 'retry-after': '5' } : {};
  if (coverable === null || code === 'topup_required')
    return new ApiError(402, code, reasons[code], { headers });
  const tokens = affordableOutput(coverable, wanted);
  const most = `${reasons[code]}: it may cost up to ${formatRubles(wanted.amount)} rubles with its ${wanted.ceiling} output tokens`;
  const rest =
    tokens > 0
      ? `with max_tokens up to ${tokens} it would be covered now`
      : 'its input alone is not covered now';
  return new ApiError(402, code, `${most}; ${rest}`, { headers, fields: { affordable_max_tokens: tokens } });
}
