import type { V1Usage, V1UsageRow } from '@nebo/contracts';
import { usageError } from '../core/errors.js';
import { flag, type CommandSpec } from '../core/program.js';
import { type Column } from '../output/table.js';

/** What rows may be told apart by, and the field of a row that says it. */
const groups = { day: 'day', model: 'model', key: 'key_id' } as const;
type Group = keyof typeof groups;

const counts: readonly Column<V1UsageRow>[] = [
  { key: 'requests' },
  { key: 'input_tokens' },
  { key: 'cached_tokens' },
  { key: 'output_tokens' },
  { key: 'reasoning_tokens', wide: true },
  { key: 'amount' },
];
const dayMs = 86_400_000;
/** A report covers at most so many days. */
const maxDays = 366;

/** `nebo usage`: what models cost, by day, model and key. */
export const usage: CommandSpec = {
  usage: 'usage',
  summary: 'charged usage of models: requests, tokens and rubles',
  example: 'nebo usage --by model,key --since 7d',
  flags: [
    flag('--by <A,B>', 'rows by day, model or key, or some of them (default day)'),
    flag('--since <TIME>', 'the last days, 7d, or a first day, 2026-11-01 (default 30d)'),
    flag('--tz <ZONE>', 'time zone of the days, Europe/Moscow (default UTC)'),
    flag('--model <NAME>', 'only this model'),
    flag('--key <ID>', 'only this inference key, a revoked one too'),
  ],
  notes:
    'Amounts are exact and sum to what the ledger charged. -o json also has the totals and the time they are as of.',
  async run(ctx, _args, { by, since, tz, model, key }) {
    const wanted = groupsOf((by as string | undefined) ?? 'day');
    const zone = (tz as string | undefined) ?? 'UTC';
    const query = {
      by: wanted.join(','),
      tz: zone,
      from: since === undefined ? undefined : firstDay(String(since), zone),
      model: model as string | undefined,
      key_id: key as string | undefined,
    };
    const report = await (await ctx.client()).get<V1Usage>('/usage', query);
    if (ctx.print.structured) return ctx.print.value(report);
    const labels = wanted.map((group): Column<V1UsageRow> => ({ key: groups[group] }));
    const nameOf = (row: V1UsageRow) => wanted.map((group) => row[groups[group]]).join(' ');
    await ctx.print.list(report.rows, [...labels, ...counts], nameOf);
    const { requests, amount } = report.totals;
    ctx.talk.notice(
      `${report.from} to ${report.to}: ${amount} rubles for ${requests} ${requests === 1 ? 'request' : 'requests'}.`,
    );
  },
};

function groupsOf(text: string): Group[] {
  const named = text.split(',').map((name) => name.trim());
  const wrong = named.find((name) => !Object.hasOwn(groups, name));
  if (wrong !== undefined)
    throw usageError(`--by takes ${Object.keys(groups).join(', ')}, with commas between, not "${wrong}"`);
  return [...new Set(named as Group[])];
}

/** The first day of "7d" (today is one of the seven) or of a date. @throws CliError usage */
function firstDay(text: string, zone: string): string {
  if (/^\d{4}-\d{2}-\d{2}$/.test(text)) return text;
  const days = Number(/^(\d{1,3})d$/.exec(text)?.[1] ?? 0);
  if (days < 1 || days > maxDays)
    throw usageError(`--since is a number of days such as 7d, at most ${maxDays}d, or a day, not "${text}"`);
  return new Date(Date.parse(today(zone)) - (days - 1) * dayMs).toISOString().slice(0, 10);
}

function today(zone: string): string {
  try {
    const parts = new Intl.DateTimeFormat('en', {
      timeZone: zone,
      calendar: 'gregory',
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
    }).formatToParts(new Date());
    const part = (type: string) => parts.find((one) => one.type === type)!.value;
    return `${part('year')}-${part('month')}-${part('day')}`;
  } catch {
    throw usageError(`--tz is a time zone such as Europe/Moscow, not "${zone}"`);
  }
}
