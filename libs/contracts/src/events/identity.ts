import { defineEvent } from '@nebo/bus';
import type { SliceRecall } from '../internal/slices.js';

/** A key was changed, disabled, enabled or revoked: whoever keeps it in memory forgets it. A hint, never the truth. */
export interface KeyChanged {
  key_id: string;
  /** Keyed hash of the key, base64url, as in `keys/resolve`. */
  hash: string;
  state: 'active' | 'disabled' | 'revoked';
}

/** Said by identity-billing, heard by every gateway. */
export const keyChanged = defineEvent<KeyChanged>('nebo.identity-billing.key.changed.v1');

/** Said by identity-billing, heard by every router of inference: somebody else needs the money (interfaces.md, 7). A hint. */
export const sliceRecall = defineEvent<SliceRecall>('nebo.identity-billing.slice.recall.v1');

/** What an account has left, 10⁻⁹ rubles, below zero for debt. */
export interface AccountMoney {
  available: string;
}

/**
 * Said by identity-billing when the standing of an account changes (internal/standing.ts); hints, the truth is asked for. Low:
 * less is left than NEBO_BALANCE_LOW. Empty: nothing, while something is charged. Suspended: for longer than the grace.
 */
export const balanceLow = defineEvent<AccountMoney>('nebo.identity-billing.balance.low.v1');
export const balanceEmpty = defineEvent<AccountMoney>('nebo.identity-billing.balance.empty.v1');
export const accountSuspended = defineEvent<AccountMoney>('nebo.identity-billing.account.suspended.v1');
export const accountResumed = defineEvent<AccountMoney>('nebo.identity-billing.account.resumed.v1');

/** Prices have new versions. */
export interface PriceChanged {
  ids: string[];
}

/** Said by identity-billing, heard by whoever keeps prices in memory. A hint. */
export const priceChanged = defineEvent<PriceChanged>('nebo.identity-billing.price.changed.v1');
