import { validationError } from '@nebo/service-kit';

/** Days of a report at most. */
const maxDays = 366;
const defaultDays = 30;
const dayMs = 86_400_000;

/** Days in a time zone, both included, `2026-11-01`. */
export interface UsageRange {
  from: string;
  to: string;
  tz: string;
}

const wrong = (field: string, msg: string) =>
  validationError([{ loc: ['query', field], msg, type: 'value_error' }]);

/**
 * The days of a query, with what was left out.
 * @throws ApiError 422 for a zone or a day that does not exist, an end before its beginning, more than 366 days
 */
export function usageRange(
  query: { from?: string; to?: string; tz: string },
  now: Date = new Date(),
): UsageRange {
  const { tz } = query;
  const to = query.to ?? dayIn(tz, now);
  const last = dayOf('to', to);
  const first = query.from === undefined ? last - (defaultDays - 1) * dayMs : dayOf('from', query.from);
  if (first > last) throw wrong('from', 'must not be after to');
  if (last - first >= maxDays * dayMs) throw wrong('from', `at most ${maxDays} days at once`);
  dayIn(tz, now);
  return { from: new Date(first).toISOString().slice(0, 10), to, tz };
}

/** Names of the zone database only: what PostgreSQL reads from an offset has the other sign. */
function dayIn(tz: string, at: Date): string {
  try {
    if (!/^[A-Za-z][A-Za-z0-9_+/-]*$/.test(tz)) throw new RangeError(tz);
    const parts = new Intl.DateTimeFormat('en', {
      timeZone: tz,
      calendar: 'gregory',
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
    }).formatToParts(at);
    const part = (type: string) => parts.find((one) => one.type === type)!.value;
    return `${part('year')}-${part('month')}-${part('day')}`;
  } catch {
    throw wrong('tz', 'there is no such time zone');
  }
}

function dayOf(field: string, text: string): number {
  const at = Date.parse(`${text}T00:00:00Z`);
  // The 30th of February would silently be the 2nd of March.
  const isDay = !Number.isNaN(at) && new Date(at).toISOString().startsWith(text);
  if (!isDay || at < Date.UTC(2000, 0)) throw wrong(field, 'there is no such day');
  return at;
}
