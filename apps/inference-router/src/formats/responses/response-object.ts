import type { Completed } from '../../completions/completions.service.js';
import { wholeItem, type OutputItem } from './output-item.js';

/** What all states of one response repeat. */
export interface ResponseHead {
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  /** Fields of the request. */
  echo: Readonly<Record<string, unknown>>;
}

const reasons: Readonly<Record<string, string>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
};

/** A response that is being made. */
export const begun = (head: ResponseHead) => responseObject(head, 'in_progress', []);

/** A response that has ended: `completed`, or `incomplete` with the reason. */
export function ended(head: ResponseHead, items: readonly OutputItem[], { finish, counters }: Completed) {
  const reason = reasons[finish];
  return responseObject(head, reason ? 'incomplete' : 'completed', items, {
    incomplete_details: reason ? { reason } : null,
    usage: counters && {
      input_tokens: counters.input,
      input_tokens_details: { cached_tokens: counters.cached, cache_write_tokens: 0 },
      output_tokens: counters.output,
      output_tokens_details: { reasoning_tokens: counters.reasoning },
      total_tokens: counters.input + counters.output,
    },
  });
}

/**
 * A response that broke off, with what of it was complete.
 * @param body the error in the shape of the format
 */
export function failed(head: ResponseHead, items: readonly OutputItem[], body: object) {
  const { code, message } = (body as { error: { code: string; message: string } }).error;
  return responseObject(head, 'failed', items, { error: { code, message } });
}

/** All fields that the types of the official clients have; absent ones would be undefined there. */
function responseObject(
  { id, created, model, echo }: ResponseHead,
  status: string,
  items: readonly OutputItem[],
  more: object = {},
) {
  return {
    id,
    object: 'response',
    created_at: created,
    status,
    background: false,
    error: null,
    incomplete_details: null,
    model,
    output: items.map(wholeItem),
    previous_response_id: null,
    store: false,
    usage: null,
    ...echo,
    ...more,
  };
}
