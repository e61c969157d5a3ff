import type { V1Build } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { spoken } from '../core/duration.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { isId } from '../core/ids.js';
import { forTerminal, wantsColor } from '../core/io.js';
import { flag, type GroupSpec } from '../core/program.js';
import { needAppId } from '../core/resolve.js';
import { needBuild } from '../deploy/builds.js';
import { followLog } from '../deploy/log.js';
import { at } from '../http/client.js';
import { type Column } from '../output/table.js';

const columns: readonly Column<V1Build>[] = [
  { key: 'id' },
  { key: 'status' },
  { key: 'deploy_state' },
  // What identifies the source: commit, image or the first twelve digits of the archive's hash.
  {
    key: 'source',
    text: (build) => (build.commit_sha ?? build.source_archive_sha256)?.slice(0, 12) ?? build.docker_image,
  },
  { key: 'duration', text: ({ duration_ms: ms }) => (ms === null || ms === undefined ? '' : spoken(ms)) },
  { key: 'created_at' },
  { key: 'commit_message', wide: true },
  { key: 'error', wide: true },
  { key: 'boot_error', wide: true },
];

/** `nebo build`. */
export const build: GroupSpec = {
  name: 'build',
  summary: 'builds of an app and their logs',
  commands: [
    {
      usage: 'list',
      alias: 'ls',
      summary: 'builds of an app, newest first',
      example: 'nebo build list --app web',
      flags: [flag('--limit <N>', 'only the newest N')],
      run: (ctx, _args, options) => list(ctx, options['limit'] as string | undefined),
    },
    {
      usage: 'logs [BUILD]',
      summary: 'the log of a build, followed while it runs; the newest build when none is named',
      example: 'nebo build logs --app web',
      waits: true,
      run: (ctx, [id]) => logs(ctx, buildArgument(id)),
    },
    {
      usage: 'show [BUILD]',
      alias: 'get',
      summary: 'one build; the newest when none is named',
      example: 'nebo build show --app web -o json',
      async run(ctx, [id]) {
        const wanted = buildArgument(id);
        const appId = await needAppId(ctx);
        await ctx.print.record(await needBuild(await ctx.client(), appId, wanted));
      },
    },
  ],
};

function buildArgument(id: unknown): string | undefined {
  if (id === undefined) return undefined;
  if (!isId(String(id)))
    throw usageError(`A build is named by its id, not "${String(id)}"`, { hint: 'nebo build list' });
  return String(id);
}

async function list(ctx: Context, limit: string | undefined): Promise<void> {
  if (limit !== undefined && !/^[1-9]\d{0,8}$/.test(limit))
    throw usageError(`--limit is a number from 1, not "${limit}"`);
  const appId = await needAppId(ctx);
  const client = await ctx.client();
  const path = at`/apps/${appId}/builds`;
  const few = limit === undefined ? null : Number(limit);
  const builds =
    few !== null && few <= 200
      ? (await client.get<{ data: V1Build[] }>(path, { limit: few, offset: 0 })).data
      : (await client.list<V1Build>(path)).slice(0, few ?? undefined);
  await ctx.print.list(builds, columns);
}

async function logs(ctx: Context, id: string | undefined): Promise<void> {
  const appId = await needAppId(ctx);
  const client = await ctx.client();
  const { id: buildId } = await needBuild(client, appId, id);
  const kept: string[] = [];
  const { stdout } = ctx.io;
  const color = wantsColor(ctx.io, stdout, ctx.early.color);
  const line = (text: string) => {
    if (ctx.print.structured) kept.push(text);
    else ctx.print.line(stdout.isTTY ? forTerminal(text, color) : text);
  };
  const lost = () => ctx.talk.notice('The connection was lost, resuming.');
  const end = await followLog(client, appId, buildId, line, lost, ctx.waitSignal(null));
  if (!end.complete) {
    throw new CliError(
      exitCodes.service,
      'log_cut',
      `The log may be cut after ${end.lines} lines: the stream ended without its end mark`,
      {
        hint: `Read it again: nebo build logs ${buildId} --app ${appId}`,
        extra: ctx.print.structured ? { lines: kept } : {},
      },
    );
  }
  if (ctx.print.structured) await ctx.print.value(kept);
  // The end of a log says nothing about success; the build does.
  ctx.talk.notice(`complete, ${end.lines} lines; how it went: nebo build show ${buildId} --app ${appId}`);
}
