import type { Dialect } from '../dialect.js';

/** DeepSeek. Reasons by default, so on and off are both said; wants the reasoning of tool turns back. */
export const deepseek: Dialect = {
  name: 'deepseek',
  ceilingField: 'max_tokens',
  reasoning: {
    off: { thinking: { type: 'disabled' } },
    on: { thinking: { type: 'enabled' } },
    levels: { minimal: 'low', low: 'low', medium: 'high', high: 'high', xhigh: 'max', max: 'max' },
    level: (word) => ({ reasoning_effort: word }),
  },
  drops: ['parallel_tool_calls', 'logit_bias', 'seed'],
  reasoningBack: { placeholder: ' ', answers: true },
  choiceWhileReasoning: 'auto',
  schemas: 'told',
  finish: { insufficient_system_resource: 'broken' },
};
