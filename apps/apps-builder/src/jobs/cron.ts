/** A field of a cron expression: its name, its bounds and the names that it knows. */
interface Field {
  name: string;
  min: number;
  max: number;
  names?: readonly string[];
}

const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const weekdays = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];

const fields: readonly Field[] = [
  { name: 'minute', min: 0, max: 59 },
  { name: 'hour', min: 0, max: 23 },
  { name: 'day of the month', min: 1, max: 31 },
  { name: 'month', min: 1, max: 12, names: months },
  // 7 is Sunday too.
  { name: 'day of the week', min: 0, max: 7, names: weekdays },
];

const dayMs = 86_400_000;
/** 29 February comes again after eight years at the latest (1896 to 1904, 2096 to 2104). */
const farthestDays = 9 * 366;

/** A schedule that cannot be read; the message is for the user. */
export class CronError extends Error {
  override name = 'CronError';
}

/**
 * A cron expression of five fields, in UTC: minute, hour, day of the month, month, day of the week; `*`, lists, ranges,
 * steps and English names of months and weekdays. When both kinds of day are restricted, either one suffices (POSIX,
 * crontab). A field that begins with `*` is not restricted.
 */
export class Cron {
  private readonly minutes: readonly number[];
  private readonly hours: readonly number[];
  private readonly days: ReadonlySet<number>;
  private readonly months: ReadonlySet<number>;
  private readonly weekdays: ReadonlySet<number>;
  /** Whether days of the month and days of the week both restrict. */
  private readonly either: boolean;

  /** @throws CronError naming the field, also for a day that never comes (30 February) */
  constructor(expression: string) {
    const words = expression.trim().split(/\s+/);
    if (words.length !== fields.length || words[0] === '')
      throw new CronError('must have five fields: minute, hour, day of the month, month, day of the week');
    const [minutes, hours, days, monthsOf, weekdaysOf] = fields.map((field, at) => read(words[at]!, field));
    this.minutes = [...minutes!].sort((a, b) => a - b);
    this.hours = [...hours!].sort((a, b) => a - b);
    this.days = days!;
    this.months = monthsOf!;
    this.weekdays = new Set([...weekdaysOf!].map((day) => day % 7));
    this.either = !words[2]!.startsWith('*') && !words[4]!.startsWith('*');
    // From the start of a leap year every date comes at once, if it ever does.
    if (this.next(new Date(Date.UTC(2024, 0, 1))) === null)
      throw new CronError('names a day that never comes');
  }

  /** The first tick after a moment, a whole minute in UTC; null when there is none in nine years. */
  next(after: Date): Date | null {
    const first = Math.floor(after.getTime() / 60_000) * 60_000 + 60_000;
    const from = Math.floor(first / dayMs) * dayMs;
    for (let day = 0; day < farthestDays; day += 1) {
      const start = from + day * dayMs;
      if (!this.isDay(new Date(start))) continue;
      for (const hour of this.hours) {
        for (const minute of this.minutes) {
          const at = start + (hour * 60 + minute) * 60_000;
          if (at >= first) return new Date(at);
        }
      }
    }
    return null;
  }

  private isDay(date: Date): boolean {
    if (!this.months.has(date.getUTCMonth() + 1)) return false;
    const [day, weekday] = [this.days.has(date.getUTCDate()), this.weekdays.has(date.getUTCDay())];
    return this.either ? day || weekday : day && weekday;
  }
}

function read(word: string, field: Field): Set<number> {
  const found = new Set<number>();
  for (const part of word.split(',')) {
    const match = /^(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:\/(\d{1,4}))?$/i.exec(part);
    if (!match) throw new CronError(`${field.name}: "${shown(part)}" cannot be read`);
    const [, from, to, every] = match as unknown as [string, string, string | undefined, string | undefined];
    const step = every === undefined ? 1 : Number(every);
    if (step < 1) throw new CronError(`${field.name}: a step must be at least 1`);
    if (from === '*' && to !== undefined)
      throw new CronError(`${field.name}: "${shown(part)}" cannot be read`);
    const first = from === '*' ? field.min : value(from, field);
    // "5/15" means from 5 to the end, as every crontab reads it.
    const open = from === '*' || (every !== undefined && to === undefined);
    const last = open ? field.max : to === undefined ? first : value(to, field);
    if (last < first) throw new CronError(`${field.name}: the range "${shown(part)}" ends before it begins`);
    for (let at = first; at <= last; at += step) found.add(at);
  }
  return found;
}

function value(word: string, field: Field): number {
  const named = field.names?.indexOf(word.toLowerCase()) ?? -1;
  const number = named >= 0 ? named + field.min : /^\d{1,4}$/.test(word) ? Number(word) : NaN;
  if (Number.isNaN(number)) throw new CronError(`${field.name}: "${shown(word)}" cannot be read`);
  if (number < field.min || number > field.max)
    throw new CronError(`${field.name}: ${number} is not between ${field.min} and ${field.max}`);
  return number;
}

const shown = (text: string) => text.slice(0, 40);
