import { type ApiError, badRequest } from '@nebo/service-kit';
import { type CatalogueModel, type Effort, efforts } from '../../catalogue/model.js';
import type { Json } from './messages-blocks.js';

/** What `thinking` asks for. */
export interface Thinking {
  effort: Effort | undefined;
  /** The client wants no thinking blocks, also where the model cannot do without. */
  isHidden: boolean;
}

const invalid = (message: string): ApiError => badRequest('invalid_thinking', message);

/** The spec's thresholds: tokens of a budget up to which a level goes. */
const lowBudget = 4_096;
const mediumBudget = 16_384;

/**
 * Reads `thinking` and `output_config.effort` (spec 4, messages, 1; inference-wire.md, 7.1 and 7.2). Absent, or adaptive
 * without an effort, is the model's default. Agents cannot recover from a refusal in the middle of their work, so "off"
 * on a model that cannot be switched off is its shortest mode.
 * @throws ApiError 400 `invalid_thinking`, `invalid_reasoning_effort`
 */
export function readThinking(thinking: unknown, outputConfig: unknown, model: CatalogueModel): Thinking {
  if (thinking === undefined || thinking === null) return { effort: undefined, isHidden: false };
  const { type, budget_tokens: budget } = (typeof thinking === 'object' ? thinking : {}) as Json;
  switch (type) {
    case 'disabled':
      return { effort: model.reasoning ? (model.reasoning.off ? 'none' : 'low') : undefined, isHidden: true };
    case 'enabled':
      return { effort: model.reasoning ? effortOfBudget(budget) : undefined, isHidden: false };
    // Kinds of newer clients: the model decides how much.
    default:
      if (typeof type !== 'string') throw invalid('thinking.type: must be enabled, adaptive or disabled');
      return { effort: model.reasoning ? effortOf(outputConfig) : undefined, isHidden: false };
  }
}

function effortOfBudget(budget: unknown): Effort {
  if (typeof budget !== 'number' || !Number.isSafeInteger(budget) || budget < 1)
    throw invalid('thinking.budget_tokens: must be a whole number of tokens from 1');
  if (budget <= lowBudget) return 'low';
  return budget <= mediumBudget ? 'medium' : 'high';
}

function effortOf(outputConfig: unknown): Effort | undefined {
  const given = (outputConfig as Json | null | undefined)?.['effort'];
  if (given === undefined || given === null) return undefined;
  const effort = efforts.find((one) => one === given && one !== 'none');
  if (!effort)
    throw badRequest(
      'invalid_reasoning_effort',
      `output_config.effort: must be one of ${efforts.filter((one) => one !== 'none').join(', ')}`,
    );
  return effort;
}
