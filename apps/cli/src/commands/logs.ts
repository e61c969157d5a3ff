import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { forTerminal, wantsColor } from '../core/io.js';
import { type CommandSpec, flag, type Options } from '../core/program.js';
import { needAppId } from '../core/resolve.js';
import { at } from '../http/client.js';
import { streamItems } from '../http/event-stream.js';
import { failureOf } from '../http/failures.js';
import { bodyText } from '../http/transport.js';

/** `nebo logs`: what an app writes while it runs. */
export const logs: CommandSpec = {
  usage: 'logs',
  summary: 'what the replicas of an app write',
  example: 'nebo logs --app shop --tail 100\nnebo logs -f --app shop',
  flags: [
    flag('-f, --follow', 'go on with new lines until Ctrl-C'),
    flag('--tail <N>', 'begin with the last N lines'),
  ],
  waits: true,
  run: (ctx, _args, options) => read(ctx, options),
};

async function read(ctx: Context, options: Options): Promise<void> {
  const tail = options['tail'] as string | undefined;
  if (tail !== undefined && !/^\d{1,6}$/.test(tail)) throw usageError(`--tail is a number, not "${tail}"`);
  const app = await needAppId(ctx);
  const client = await ctx.client();
  const signal = ctx.waitSignal(null);
  const follow = options['follow'] === true;
  const query = { follow: String(follow), ...(tail === undefined ? {} : { tail }) };
  const answer = await client.open({
    method: 'GET',
    path: at`/apps/${app}/logs`,
    query,
    accept: 'text/event-stream',
    signal,
  });
  if (answer.statusCode !== 200)
    throw failureOf(answer.statusCode ?? 0, answer.headers, await bodyText(answer, signal));
  const { stdout } = ctx.io;
  const color = wantsColor(ctx.io, stdout, ctx.early.color);
  const lines: string[] = [];
  try {
    for await (const item of streamItems(answer)) {
      if (item.kind === 'done') return ctx.print.structured ? await ctx.print.value(lines) : undefined;
      if (ctx.print.structured) lines.push(item.text);
      else ctx.print.line(stdout.isTTY ? forTerminal(item.text, color) : item.text);
    }
  } catch (error) {
    signal.throwIfAborted();
    ctx.talk.debug(`stream: ${(error as Error).message}`);
  }
  throw new CliError(
    exitCodes.service,
    'log_cut',
    'The log may be cut: the stream ended without its end mark',
    {
      hint: `Read it again: nebo logs --app ${app}`,
    },
  );
}
