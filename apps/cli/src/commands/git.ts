import type { V1GitAuthorization, V1GitConnection } from '@nebo/contracts';
import { setTimeout as sleep } from 'node:timers/promises';
import { embeddedContract } from '../contract/embedded.js';
import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { type CommandSpec, flag, type GroupSpec, type Options } from '../core/program.js';
import { missing } from '../core/prompts.js';
import { readAll } from '../core/stdin.js';
import { at, type ApiClient } from '../http/client.js';
import { commandOf } from '../kinds/command.js';
import { type Verb } from '../kinds/verbs.js';

/** How often it is looked whether somebody has agreed. Milliseconds. */
const lookMs = 1_000;

const verbs: readonly Verb[] = [
  {
    usage: 'list',
    alias: 'ls',
    summary: 'connected git hosts',
    example: 'nebo git list',
    call: 'GET /git/connections',
    rows: 'CONNECTION',
  },
  {
    usage: 'show CONNECTION',
    alias: 'get',
    summary: 'one connection',
    example: 'nebo git show ann',
    call: 'GET /git/connections/{connection_id}',
  },
  {
    usage: 'repos CONNECTION',
    summary: 'repositories that a connection reaches',
    example: 'nebo git repos ann',
    call: 'GET /git/connections/{connection_id}/repositories',
    rows: 'REPOSITORY',
  },
  {
    usage: 'delete CONNECTION',
    alias: 'rm',
    summary: 'forget a connection and its token',
    example: 'nebo git delete ann',
    call: 'DELETE /git/connections/{connection_id}',
    ask: 'CONNECTION',
  },
];

const connectCommand: CommandSpec = {
  usage: 'connect',
  summary: 'connect a git host, or reconnect it: by its OAuth app, or with --token by a token',
  example:
    'nebo git connect --provider gitlab\nnebo git connect --provider gitea --base-url https://git.example.org --token < token.txt',
  notes: `Without --token an address is printed, and the command waits until you have agreed there (ten minutes at most).
With --token the token comes from stdin, or from a hidden prompt: no secret stands in an argument.`,
  flags: [
    flag('--provider <HOST>', 'github, gitlab, gitea, gitverse or gitflic; needed'),
    flag('--base-url <URL>', 'address of a self-hosted git host'),
    flag('--name <NAME>', 'what to call it; your name at the host otherwise'),
    flag('--token', 'by a token instead of the OAuth app'),
    flag('--installation', 'by installing the app in an account (github)'),
    flag('--no-wait', 'print the address and return'),
  ],
  waits: true,
  run: (ctx, _args, options) => connect(ctx, options),
};

/** `nebo git`: connections to git hosts. */
export const git: GroupSpec = {
  name: 'git',
  summary: 'connections to git hosts',
  example: 'nebo git connect --provider gitlab',
  get commands() {
    const table = embeddedContract();
    return [
      connectCommand,
      ...verbs.map((verb) => commandOf('git', verb, table)).filter((one) => one !== null),
    ];
  },
};

async function connect(ctx: Context, options: Options): Promise<void> {
  const provider = options['provider'] as string | undefined;
  if (provider === undefined)
    throw missing('git host', '--provider', ['github', 'gitlab', 'gitea', 'gitverse', 'gitflic']);
  if (options['token'] === true && options['installation'] === true)
    throw usageError('A connection is by --token or by --installation, not by both');
  const client = await ctx.client();
  const about = { provider, base_url: options['baseUrl'], name: options['name'] };
  if (options['token'] === true) {
    const token = await readToken(ctx);
    return ctx.print.record(
      await client.write<V1GitConnection>('POST', '/git/connections', { ...about, token }),
    );
  }
  const begun = await client.write<V1GitAuthorization>('POST', '/git/authorizations', {
    ...about,
    ...(options['installation'] === true ? { installation: true } : {}),
  });
  if (options['wait'] === false) {
    if (ctx.print.structured || ctx.print.format === 'name') return ctx.print.record(begun);
    return ctx.print.line(String(begun.authorize_url));
  }
  // stdout is for the connection; --quiet must not hide the only thing that a person has to do.
  ctx.talk.warn(`open this address and agree there:\n${begun.authorize_url}`);
  await ctx.print.record(await agreed(ctx, client, begun));
}

async function readToken(ctx: Context): Promise<string> {
  const token = ctx.prompts.possible
    ? await ctx.prompts.askHidden('Token (hidden): ')
    : (await readAll(ctx.io.stdin)).trim();
  if (token === '') throw missing('token', 'nebo git connect --token < FILE');
  return token;
}

/** Waits for the person. @throws CliError exit 1 when nothing came of it, 10 after the limit */
async function agreed(
  ctx: Context,
  client: ApiClient,
  { id, expires_at }: V1GitAuthorization,
): Promise<V1GitConnection> {
  const signal = ctx.waitSignal(null);
  const end = Date.parse(String(expires_at));
  for (;;) {
    const { status, status_reason, connection_id } = await client.get<V1GitAuthorization>(
      at`/git/authorizations/${id}`,
      undefined,
      signal,
    );
    if (status === 'connected' && connection_id !== null)
      return client.get<V1GitConnection>(at`/git/connections/${connection_id}`);
    if (status !== 'pending')
      throw new CliError(
        exitCodes.failed,
        'not_connected',
        `Nothing was connected: ${status_reason ?? status}`,
      );
    const left = Math.max(0, Math.round((end - Date.now()) / 1_000));
    ctx.talk.status(`waiting for you to agree · ${left} s left`);
    await sleep(lookMs, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
}
