import { Cron, CronError } from './cron.js';

const next = (expression: string, after: string) => new Cron(expression).next(new Date(after))?.toISOString();

describe('a cron expression', () => {
  it.each([
    ['* * * * *', '2026-01-01T00:00:00.000Z', '2026-01-01T00:01:00.000Z'],
    ['* * * * *', '2026-01-01T00:00:59.999Z', '2026-01-01T00:01:00.000Z'],
    ['*/15 * * * *', '2026-01-01T00:46:00Z', '2026-01-01T01:00:00.000Z'],
    ['5/20 * * * *', '2026-01-01T00:46:00Z', '2026-01-01T01:05:00.000Z'],
    ['0 3 * * *', '2026-12-31T03:00:00Z', '2027-01-01T03:00:00.000Z'],
    ['30 8-10,22 * * *', '2026-01-01T10:30:00Z', '2026-01-01T22:30:00.000Z'],
    ['0 0 1 1 *', '2026-01-01T00:00:00Z', '2027-01-01T00:00:00.000Z'],
    ['0 0 29 2 *', '2026-01-01T00:00:00Z', '2028-02-29T00:00:00.000Z'],
    // 2100 is no leap year.
    ['0 0 29 2 *', '2096-03-01T00:00:00Z', '2104-02-29T00:00:00.000Z'],
    ['0 0 31 * *', '2026-01-31T00:00:00Z', '2026-03-31T00:00:00.000Z'],
    // Monday; both words for Sunday; names of any case.
    ['0 9 * * 1', '2026-11-21T12:00:00Z', '2026-11-23T09:00:00.000Z'],
    ['0 9 * * 7', '2026-11-21T12:00:00Z', '2026-11-22T09:00:00.000Z'],
    ['0 9 * * 0', '2026-11-21T12:00:00Z', '2026-11-22T09:00:00.000Z'],
    ['0 9 * DEC sun-Tue', '2026-11-21T12:00:00Z', '2026-12-01T09:00:00.000Z'],
    ['0 9 * * 5-7', '2026-11-22T12:00:00Z', '2026-11-27T09:00:00.000Z'],
    // Both kinds of day restricted: either one.
    ['0 0 13 * 5', '2026-11-14T00:00:00Z', '2026-11-20T00:00:00.000Z'],
    ['0 0 13 * 5', '2026-12-12T00:00:00Z', '2026-12-13T00:00:00.000Z'],
    // One of them begins with a star: both.
    ['0 0 */2 * 1', '2026-11-16T00:00:00Z', '2026-11-23T00:00:00.000Z'],
    ['  0   0  1  *  * ', '2026-11-16T00:00:00Z', '2026-12-01T00:00:00.000Z'],
  ])('%s after %s ticks at %s', (expression, after, wanted) => {
    expect(next(expression, after)).toBe(wanted);
  });

  it.each([
    ['', /five fields/],
    ['* * * *', /five fields/],
    ['* * * * * *', /five fields/],
    ['@hourly', /five fields/],
    ['60 * * * *', /minute: 60 is not between 0 and 59/],
    ['* 24 * * *', /hour: 24/],
    ['* * 0 * *', /day of the month: 0/],
    ['* * * 13 *', /month: 13/],
    ['* * * * 8', /day of the week: 8/],
    ['*/0 * * * *', /step must be at least 1/],
    ['5-1 * * * *', /ends before it begins/],
    ['1, * * * *', /cannot be read/],
    ['-1 * * * *', /cannot be read/],
    ['*-5 * * * *', /cannot be read/],
    ['1.5 * * * *', /cannot be read/],
    ['jan * * * *', /minute: "jan" cannot be read/],
    ['0 0 30 2 *', /never comes/],
    ['0 0 31 4,6,9,11 *', /never comes/],
  ])('%j is refused', (expression, reason) => {
    expect(() => new Cron(expression)).toThrow(CronError);
    expect(() => new Cron(expression)).toThrow(reason);
  });

  it('agrees with a look at every minute of a year, over random expressions', () => {
    let state = 1;
    const random = (below: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const word = (min: number, max: number) => {
      const a = min + random(max - min + 1);
      const b = a + random(max - a + 1);
      return ['*', `${a}`, `${a}-${b}`, `*/${1 + random(max)}`, `${a},${b}`, `${a}-${b}/${1 + random(5)}`][
        random(6)
      ]!;
    };
    const begin = Date.UTC(2027, 0, 1);
    for (let round = 0; round < 40; round += 1) {
      const parts = [word(0, 59), word(0, 23), word(1, 28), word(1, 12), word(0, 6)];
      const cron = new Cron(parts.join(' '));
      const sets = parts.map((text, at) => naive(text, [0, 0, 1, 1, 0][at]!, [59, 23, 31, 12, 6][at]!));
      const either = !parts[2]!.startsWith('*') && !parts[4]!.startsWith('*');
      const ticks: number[] = [];
      for (let at = begin; at < begin + 366 * 86_400_000 && ticks.length < 30; at += 60_000) {
        const date = new Date(at);
        const [day, weekday] = [sets[2]!.has(date.getUTCDate()), sets[4]!.has(date.getUTCDay())];
        if (
          sets[0]!.has(date.getUTCMinutes()) &&
          sets[1]!.has(date.getUTCHours()) &&
          sets[3]!.has(date.getUTCMonth() + 1) &&
          (either ? day || weekday : day && weekday)
        )
          ticks.push(at);
      }
      let at = new Date(begin - 1);
      for (const tick of ticks) {
        at = cron.next(at)!;
        expect([parts.join(' '), at.getTime()]).toEqual([parts.join(' '), tick]);
      }
    }
  });
});

function naive(text: string, min: number, max: number): Set<number> {
  const all = new Set<number>();
  for (const part of text.split(',')) {
    const [range, step = '1'] = part.split('/');
    const [from, to] = range === '*' ? [min, max] : range!.split('-').map(Number);
    for (let at = from!; at <= (to ?? from!); at += Number(step)) all.add(at);
  }
  return all;
}
