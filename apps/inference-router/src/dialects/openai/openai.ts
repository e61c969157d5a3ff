import type { Dialect } from '../dialect.js';

/** The plain form: aggregators and open servers that follow it. Nothing is sent for "on", which is their default. */
export const openai: Dialect = {
  name: 'openai',
  ceilingField: 'max_tokens',
  reasoning: {
    off: { reasoning_effort: 'none' },
    on: {},
    levels: { minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'high', max: 'high' },
    level: (word) => ({ reasoning_effort: word }),
  },
};
