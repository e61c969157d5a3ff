import type { Counters } from './dialect.js';

type Json = Readonly<Record<string, unknown>>;

/**
 * The counters of a chunk or plain answer, in whichever of the known shapes: beside the choices, in the first choice
 * (Kimi), cached tokens in the details or at the vendor's own name. Null when there are none, or none that can be
 * believed: a request is never billed by half a counter.
 */
export function readCounters(chunk: Json): Counters | null {
  const usage = (chunk['usage'] ?? firstChoice(chunk)?.['usage']) as Json | null | undefined;
  if (typeof usage !== 'object' || usage === null) return null;
  const input = count(usage['prompt_tokens']);
  let output = count(usage['completion_tokens']);
  if (input === null || output === null) return null;
  const promptDetails = (usage['prompt_tokens_details'] ?? {}) as Json;
  const outputDetails = (usage['completion_tokens_details'] ?? {}) as Json;
  const cached =
    count(promptDetails['cached_tokens']) ??
    count(usage['prompt_cache_hit_tokens']) ??
    count(usage['cached_tokens']) ??
    0;
  const reasoning = count(outputDetails['reasoning_tokens']) ?? count(usage['reasoning_tokens']) ?? 0;
  // More reasoning than output means that this host counts it beside the answer.
  if (reasoning > output) output += reasoning;
  return { input, cached: Math.min(cached, input), output, reasoning };
}

function firstChoice(chunk: Json): Json | undefined {
  const choices = chunk['choices'];
  return Array.isArray(choices) ? (choices[0] as Json | undefined) : undefined;
}

const count = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;

/** Counters as the chat format shows them. */
export function chatUsage({ input, cached, output, reasoning }: Counters) {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens_details: { reasoning_tokens: reasoning },
  };
}
