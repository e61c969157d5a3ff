import type { Dialect } from '../dialect.js';

/** Thinking tokens that a level may take; the vendor knows no levels, only a budget. */
const budgets: Readonly<Record<string, number>> = {
  minimal: 1_024,
  low: 2_048,
  medium: 8_192,
  high: 32_768,
  max: 81_920,
};

const within = (budget: number, ceiling: number) => ({
  thinking_budget: Math.max(1, Math.min(budget, ceiling - 1)),
});

/**
 * Alibaba, Qwen. The vendor's `max_tokens` may not cover thinking, so the budget is kept below the request's ceiling;
 * what is billed never exceeds the ceiling in any case.
 */
export const qwen: Dialect = {
  name: 'qwen',
  ceilingField: 'max_tokens',
  reasoning: {
    off: { enable_thinking: false },
    on: { enable_thinking: true },
    levels: { minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'max', max: 'max' },
    level: (word, ceiling) => within(budgets[word] ?? 8_192, ceiling),
    bound: (ceiling) => within(81_920, ceiling),
  },
  drops: ['logit_bias'],
  choiceWhileReasoning: 'auto',
  system: 'first',
  // With 400.
  accountCodes: ['Arrearage'],
};
