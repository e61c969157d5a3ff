import { badRequest } from '@nebo/service-kit';
import type { CatalogueModel } from '../catalogue/model.js';

/**
 * The output ceiling of a request, tokens: what the client gave, or the format's default capped by the model's limit.
 * @param given value of the field; undefined and null: absent
 * @throws ApiError 400 `max_tokens_too_large` naming the limit, `invalid_max_tokens`
 */
export function ceilingOf(field: string, given: unknown, model: CatalogueModel, fallback: number): number {
  if (given === undefined || given === null) return Math.min(fallback, model.maxOutputTokens);
  if (typeof given !== 'number' || !Number.isSafeInteger(given) || given < 1) {
    throw badRequest(
      'invalid_max_tokens',
      `${field} must be a whole number of tokens from 1 to ${model.maxOutputTokens}`,
    );
  }
  if (given > model.maxOutputTokens) {
    throw badRequest(
      'max_tokens_too_large',
      `${field} is ${given}, but ${model.id} gives at most ${model.maxOutputTokens} tokens`,
    );
  }
  return given;
}
