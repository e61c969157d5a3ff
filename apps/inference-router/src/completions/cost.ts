import { type Nano, type PriceRef, priceOfCounts } from '@nebo/contracts';
import type { ModelPrices } from '../catalogue/model.js';
import type { Counters } from '../dialects/dialect.js';

/** Prices of one model as they were when a request was admitted. */
export interface Tariff extends ModelPrices {
  /** The newest version among its prices. */
  version: number;
  /** All of them, for the ledger. */
  refs: readonly PriceRef[];
}

/** What a request can cost at most: all input at its dearer price, all output up to the ceiling. */
export function worstCase(inputTokens: number, ceiling: number, tariff: Tariff): Nano {
  const dearest = tariff.cache_read > tariff.input ? tariff.cache_read : tariff.input;
  return priceOfCounts([
    { count: BigInt(inputTokens), perMillion: dearest },
    { count: BigInt(ceiling), perMillion: tariff.output },
  ]);
}

/**
 * What counted tokens cost: fresh input, cached input at its own price, output with reasoning; summed exactly and
 * rounded up once. Output beyond the ceiling that the client set is not billed.
 */
export function costOf(counters: Counters, ceiling: number, tariff: Tariff): Nano {
  return priceOfCounts([
    { count: BigInt(counters.input - counters.cached), perMillion: tariff.input },
    { count: BigInt(counters.cached), perMillion: tariff.cache_read },
    { count: BigInt(Math.min(counters.output, ceiling)), perMillion: tariff.output },
  ]);
}
