import type { Dialect } from '../dialect.js';

/**
 * Moonshot, Kimi. The vendor's own API cannot switch k3 off (other hosts can): it is asked anyway, and an answer to
 * `none` never shows reasoning (inference-wire.md, 7.8). Sampling values are fixed by the vendor, others are refused.
 */
export const moonshot: Dialect = {
  name: 'moonshot',
  ceilingField: 'max_completion_tokens',
  reasoning: {
    off: { thinking: { type: 'disabled' } },
    on: {},
    levels: { minimal: 'low', low: 'low', medium: 'high', high: 'high', xhigh: 'max', max: 'max' },
    level: (word) => ({ reasoning_effort: word }),
  },
  drops: [
    'temperature',
    'top_p',
    'presence_penalty',
    'frequency_penalty',
    'logit_bias',
    'parallel_tool_calls',
    'seed',
  ],
  choiceWhileReasoning: 'required',
  reasoningBack: { placeholder: ' ', always: true },
  // With 429.
  accountCodes: ['exceeded_current_quota_error'],
  // Links to pictures are refused.
  images: 'bytes',
};
