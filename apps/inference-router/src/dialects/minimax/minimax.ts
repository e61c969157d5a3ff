import type { Dialect } from '../dialect.js';

/** The vendor's codes of failures that come with HTTP 200, as the statuses that they amount to. */
const statuses: Readonly<Record<number, number>> = {
  1002: 429,
  1004: 401,
  1008: 402,
  1026: 400,
  1027: 400,
  1039: 429,
  2013: 400,
  2049: 401,
};

/** MiniMax. Without `reasoning_split` the reasoning would stand inside the text as `<think>`. */
export const minimax: Dialect = {
  name: 'minimax',
  ceilingField: 'max_completion_tokens',
  reasoning: { off: { thinking: { type: 'disabled' } }, on: { thinking: { type: 'adaptive' } } },
  always: { reasoning_split: true },
  drops: [
    'logit_bias',
    'parallel_tool_calls',
    'seed',
    'presence_penalty',
    'frequency_penalty',
    'logprobs',
    'top_logprobs',
  ],
  toolChoice: 'none',
  failure: (chunk) => {
    const told = chunk['base_resp'] as { status_code?: unknown; status_msg?: unknown } | undefined;
    if (typeof told?.status_code !== 'number' || told.status_code === 0) return null;
    return { status: statuses[told.status_code] ?? 502, message: String(told.status_msg ?? '') };
  },
  system: 'first',
  thinkTags: true,
};
