import { usageError } from './errors.js';

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/**
 * "90", "90s", "5m", "1h", "500ms" as milliseconds; a bare number is seconds.
 * @param name the flag or variable, for the message
 * @throws CliError usage
 */
export function parseDuration(text: string, name: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text.trim());
  const ms = match ? Number(match[1]) * units[match[2] ?? 's']! : 0;
  // setTimeout takes 31 bits and fires at once beyond them.
  if (!(ms > 0) || ms > 2 ** 31 - 1)
    throw usageError(`${name} is a time such as 90s, 5m or 1h, not "${text}"`);
  return ms;
}

/** "12 s", "3 min 4 s", "1 h 2 min". @param ms milliseconds */
export function spoken(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 === 0 ? `${minutes} min` : `${minutes} min ${seconds % 60} s`;
  return minutes % 60 === 0 ? `${minutes / 60} h` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** "1.5 MiB". @param bytes a number of bytes */
export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(3, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${['B', 'KiB', 'MiB', 'GiB'][power]}`;
}
