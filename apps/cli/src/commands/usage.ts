import type { V1AppUsageRow, V1Usage, V1UsageRow } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { usageError } from '../core/errors.js';
import { flag, type CommandSpec } from '../core/program.js';
import { needAppId } from '../core/resolve.js';
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
const appColumns: readonly Column<V1AppUsageRow>[] = [
  { key: 'app_id' },
  { key: 'kind' },
  { key: 'active_cpu_seconds' },
  { key: 'memory_gb_hours' },
  { key: 'included_cpu_seconds', wide: true },
  { key: 'included_memory_gb_hours', wide: true },
  { key: 'free_hours', wide: true },
  { key: 'amount' },
];
const dayMs = 86_400_000;
/** A report covers at most so many days. */
const maxDays = 366;

/** `nebo usage`: what models cost, by day, model and key, and apps on demand, by day and app. */
export const usage: CommandSpec = {
  usage: 'usage',
  summary: 'charged usage of models and of apps on demand',
  example: 'nebo usage --by model,key --since 7d',
  flags: [
    flag('--by <A,B>', 'rows by day, model or key, or some of them (default day)'),
    flag('--since <TIME>', 'the last days, 7d, or a first day, 2026-11-01 (default 30d)'),
    flag('--tz <ZONE>', 'time zone of the days, Europe/Moscow (default UTC)'),
    flag('--model <NAME>', 'only this model'),
    flag('--key <ID>', 'only this inference key, a revoked one too'),
    flag(
      '--apps',
      'apps on demand and job runs, with --app one of them: CPU, memory, what is left of the plan',
    ),
  ],
  notes:
    'Amounts are exact and sum to what the ledger charged. -o json also has the totals and the time they are as of.',
  async run(ctx, _args, { by, since, tz, model, key, apps }) {
    if (apps && (model !== undefined || key !== undefined))
      throw usageError('--apps goes with neither --model nor --key: apps have no keys');
    const wanted = groupsOf((by as string | undefined) ?? 'day');
    const zone = (tz as string | undefined) ?? 'UTC';
    const query = {
      by: wanted.join(','),
      tz: zone,
      from: since === undefined ? undefined : firstDay(String(since), zone),
      model: model as string | undefined,
      key_id: key as string | undefined,
      // The one that is linked or in the environment is not meant: without the flag it is all of them.
      app_id: apps && ctx.flags.app !== undefined ? await needAppId(ctx) : undefined,
    };
    const report = await (await ctx.client()).get<V1Usage>('/usage', query);
    if (ctx.print.structured) return ctx.print.value(report);
    if (apps) return showApps(ctx, report, wanted.includes('day'));
    const labels = wanted.map((group): Column<V1UsageRow> => ({ key: groups[group] }));
    const nameOf = (row: V1UsageRow) => wanted.map((group) => row[groups[group]]).join(' ');
    await ctx.print.list(report.rows, [...labels, ...counts], nameOf);
    const { requests, amount } = report.totals;
    ctx.talk.notice(
      `${report.from} to ${report.to}: ${amount} rubles for ${requests} ${requests === 1 ? 'request' : 'requests'}.`,
    );
    if (report.apps?.rows.length > 0)
      ctx.talk.notice(`Apps on demand: ${report.apps.totals.amount} rubles, see nebo usage --apps.`);
  },
};

async function showApps(ctx: Context, report: V1Usage, byDay: boolean): Promise<void> {
  const { rows, totals } = report.apps;
  const columns = byDay ? [{ key: 'day' }, ...appColumns] : appColumns;
  await ctx.print.list(rows, columns, ({ app_id }) => app_id);
  const { plan, month, active_cpu_hours: cpu, memory_gb_hours: memory } = report.allowance;
  ctx.talk.notice(`${report.from} to ${report.to}: ${totals.amount} rubles for apps on demand.`);
  ctx.talk.notice(
    `Left of plan ${plan} in ${month}: ${cpu.left} of ${cpu.included} hours of Active CPU, ${memory.left} of ${memory.included} GB-hours.`,
  );
  if (totals.free_hours > 0)
    ctx.talk.notice(`${totals.free_hours} hours were not measured, so they are free.`);
}

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
