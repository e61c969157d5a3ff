import type { Dialect } from '../dialect.js';

/** Z.ai, GLM. `clear_thinking: false` keeps the reasoning of earlier turns, without which tool loops lose the thread. */
export const zhipu: Dialect = {
  name: 'zhipu',
  ceilingField: 'max_tokens',
  reasoning: {
    off: { thinking: { type: 'disabled' } },
    on: { thinking: { type: 'enabled', clear_thinking: false } },
    levels: { minimal: 'low', low: 'low', medium: 'high', high: 'high', xhigh: 'max', max: 'max' },
    level: (word) => ({ reasoning_effort: word }),
  },
  // Otherwise a call's arguments come in one late piece.
  withTools: { tool_stream: true },
  drops: [
    'parallel_tool_calls',
    'logit_bias',
    'logprobs',
    'top_logprobs',
    'presence_penalty',
    'frequency_penalty',
    'seed',
  ],
  toolChoice: 'auto',
  schemas: 'told',
  // With 429.
  accountCodes: ['1113'],
  finish: { sensitive: 'content_filter', network_error: 'broken', model_context_window_exceeded: 'length' },
};
