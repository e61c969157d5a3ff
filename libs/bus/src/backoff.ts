import { setTimeout as delay } from 'node:timers/promises';

/** Exponential back-off: base, twice the base, …, at most max; all in milliseconds. */
export interface Backoff {
  baseMs: number;
  maxMs: number;
}

/** Milliseconds before the try after `attempt` (1 at first), with jitter so that many failures do not march in step. */
export function backoffMs(attempt: number, { baseMs, maxMs }: Backoff): number {
  const full = Math.min(maxMs, baseMs * 2 ** Math.min(attempt - 1, 30));
  return Math.ceil(full * (0.5 + Math.random() / 2));
}

/** Sleeps, at most until the signal; never throws. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
}

/** Whatever was thrown, as an Error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

/** Waits for `work`, at most so long; never throws. Used where a stop must end whatever others do. */
export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const limit = new AbortController();
  await Promise.race([work.catch(() => undefined), sleep(ms, limit.signal)]);
  limit.abort();
}

/** How long the close of a bus waits for handlers that do not end: stopping a process may take 10 s in all. */
export const closeMs = 5_000;
