import type { Provider } from '../catalogue/catalogue.js';
import { openai } from '../dialects/openai/openai.js';

/** Name of the built-in provider; also usable in the operator's file. */
export const simulatorName = 'simulator';

/** The simulator speaks the plain form and is told "on" in words, since it has no default of its own. */
export const simulatorProvider: Provider = {
  name: simulatorName,
  baseUrl: null,
  apiKey: null,
  dialect: {
    ...openai,
    name: simulatorName,
    reasoning: { ...openai.reasoning, on: { reasoning_effort: 'medium' } },
  },
};
