import type { Dialect } from '../dialect.js';

/** Xiaomi, MiMo. On or off, no levels; the ceiling covers thinking; wants the reasoning of tool turns back. */
export const mimo: Dialect = {
  name: 'mimo',
  ceilingField: 'max_completion_tokens',
  reasoning: { off: { thinking: { type: 'disabled' } }, on: { thinking: { type: 'enabled' } } },
  drops: ['logit_bias', 'parallel_tool_calls'],
  reasoningBack: { placeholder: ' ' },
  system: 'first',
  finish: { repetition_truncation: 'length' },
};
