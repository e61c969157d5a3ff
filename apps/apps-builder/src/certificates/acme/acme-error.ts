/**
 * What kept a certificate authority from doing its part: `away` (no answer, or in trouble), `limited` (it asks to come
 * later), `unknown_account` (it has forgotten ours), `refused` (it says no, and why), `odd` (an answer that is none).
 */
export type AcmeFailure = 'away' | 'limited' | 'unknown_account' | 'refused' | 'odd';

export class AcmeError extends Error {
  override readonly name = 'AcmeError';

  /** @param retryAfterMs what the authority asked for; null: nothing */
  constructor(
    readonly failure: AcmeFailure,
    message: string,
    readonly retryAfterMs: number | null = null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A problem document (RFC 7807) as one sentence. */
export function sentenceOf(problem: unknown, fallback: string): string {
  const { detail, type, subproblems } = (problem ?? {}) as {
    detail?: unknown;
    type?: unknown;
    subproblems?: { detail?: unknown }[];
  };
  const words = [detail, ...(Array.isArray(subproblems) ? subproblems.map((one) => one?.detail) : [])]
    .filter((text): text is string => typeof text === 'string')
    .join('; ');
  const name = typeof type === 'string' ? type.split(':').at(-1)! : '';
  // Foreign words: short, and one line.
  return [name, words || fallback].filter(Boolean).join(': ').replace(/\s+/g, ' ').slice(0, 500);
}

/** The value of a Retry-After header in milliseconds; null: none that can be read. */
export function retryAfter(value: string | string[] | undefined, now = Date.now()): number | null {
  if (typeof value !== 'string') return null;
  const ms = /^\d{1,7}$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - now;
  return Number.isFinite(ms) ? Math.max(0, ms) : null;
}
