import type { InferenceIdentity } from '@nebo/contracts';
import { ApiError, badRequest } from '@nebo/service-kit';
import type { Catalogue, Offer } from '../catalogue/catalogue.js';

/**
 * The model that a request names, for every format alike.
 * @throws ApiError 400 `model_required`, 404 `model_not_found`, 403 `model_not_allowed`
 */
export function offerOf(model: unknown, catalogue: Catalogue, caller: InferenceIdentity): Offer {
  if (model === undefined || model === null || model === '')
    throw badRequest('model_required', 'model: a model must be named');
  if (typeof model !== 'string') throw badRequest('model_required', 'model: must be a string');
  const offer = catalogue.get(model);
  if (!offer)
    throw new ApiError(
      404,
      'model_not_found',
      `there is no model "${model.slice(0, 100)}" in the catalogue; GET /v1/models lists all`,
    );
  if (caller.models && !caller.models.includes(model)) {
    throw new ApiError(403, 'model_not_allowed', `this key may not use ${model}`);
  }
  return offer;
}
