/** Durations in milliseconds, for deadlines and waits that read like sentences. */
export const seconds = (count: number): number => count * 1_000;
export const minutes = (count: number): number => count * 60_000;
export const hours = (count: number): number => count * 3_600_000;

/** A duration for people: `20 min`, `90 s`, `2 h`, `250 ms`. */
export function humanDuration(ms: number): string {
  if (ms >= 3_600_000 && ms % 3_600_000 === 0) return `${ms / 3_600_000} h`;
  if (ms >= 60_000 && ms % 60_000 === 0) return `${ms / 60_000} min`;
  if (ms >= 1_000) return `${Math.round(ms / 100) / 10} s`;
  return `${ms} ms`;
}
