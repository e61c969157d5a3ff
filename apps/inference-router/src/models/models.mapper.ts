import type { V1Model } from '@nebo/contracts';
import type { Offer } from '../catalogue/catalogue.js';

/** A model as the list shows it; a simulated one says so in `owned_by`. */
export function toV1Model({ model, simulated }: Offer): V1Model {
  return {
    id: model.id,
    object: 'model',
    owned_by: simulated ? `${model.ownedBy} (simulated)` : model.ownedBy,
    context_window: model.contextWindow,
    max_output_tokens: model.maxOutputTokens,
    capabilities: { tools: model.tools, vision: model.vision, reasoning: model.reasoning !== null },
  };
}
