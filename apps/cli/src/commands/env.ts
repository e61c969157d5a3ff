import type { V1EnvVar } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { flag, type GroupSpec } from '../core/program.js';
import { missing } from '../core/prompts.js';
import { needAppId } from '../core/resolve.js';
import { readAll } from '../core/stdin.js';
import { nearest } from '../core/suggest.js';
import { at } from '../http/client.js';
import { type Column } from '../output/table.js';

const columns: readonly Column<V1EnvVar>[] = [
  { key: 'name' },
  { key: 'value' },
  { key: 'is_secret' },
  { key: 'created_at', wide: true },
  { key: 'id', wide: true },
];

/** `nebo env`: the variables of an app. */
export const env: GroupSpec = {
  name: 'env',
  summary: 'environment variables of an app',
  commands: [
    {
      usage: 'list',
      alias: 'ls',
      summary: 'all variables; the values of secrets are masked',
      example: 'nebo env list --app web',
      async run(ctx) {
        const id = await needAppId(ctx);
        await ctx.print.list(await (await ctx.client()).list<V1EnvVar>(at`/apps/${id}/env`), columns);
      },
    },
    {
      usage: 'set <K=V...>',
      summary: 'make or change variables; the replicas restart',
      example: 'nebo env set GREETING=hello LIMIT=10 --app web\nnebo env set TOKEN --secret < token.txt',
      notes:
        'A name without "=" takes its value from stdin (hidden prompt on a terminal), so that no secret stands in an argument.',
      flags: [flag('--secret', 'the values are never shown again')],
      run: (ctx, [words], options) => set(ctx, words as readonly string[], options['secret'] === true),
    },
    {
      usage: 'unset <K...>',
      alias: 'rm',
      summary: 'remove variables; the replicas restart',
      example: 'nebo env unset GREETING --app web',
      run: (ctx, [words]) => unset(ctx, words as readonly string[]),
    },
  ],
};

async function set(ctx: Context, words: readonly string[], secret: boolean): Promise<void> {
  const pairs = await readPairs(ctx, words, secret);
  const id = await needAppId(ctx);
  const client = await ctx.client();
  const done: V1EnvVar[] = [];
  for (const [name, value] of pairs) {
    try {
      done.push(
        await client.write<V1EnvVar>('POST', at`/apps/${id}/env`, { name, value, is_secret: secret }),
      );
    } catch (error) {
      if (!(error instanceof CliError) || done.length === 0) throw error;
      const set = done.map((one) => one.name);
      throw new CliError(error.exit, error.code, error.message, {
        ...error.more,
        lines: [...(error.more.lines ?? []), `${name} was refused; set before it: ${set.join(', ')}`],
        extra: { ...error.more.extra, set, refused: name },
      });
    }
  }
  ctx.talk.notice('The replicas restart with the new values; what a build reads needs a new build.');
  await ctx.print.list(done, columns);
}

async function readPairs(
  ctx: Context,
  words: readonly string[],
  secret: boolean,
): Promise<[string, string][]> {
  const pairs = words.map((word): [string, string | null] => {
    const equals = word.indexOf('=');
    if (equals === 0) throw usageError(`A variable is NAME=value, not "${word}"`);
    return equals < 0 ? [word, null] : [word.slice(0, equals), word.slice(equals + 1)];
  });
  const names = pairs.map(([name]) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw usageError(`${twice} is given twice`);
  const open = pairs.filter(([, value]) => value === null);
  if (open.length > 1 && !ctx.prompts.possible)
    throw usageError(`Only one value can come from stdin, not ${open.map(([name]) => name).join(', ')}`);
  const whole: [string, string][] = [];
  for (const [name, given] of pairs) {
    const value = given ?? (await readValue(ctx, name, secret));
    if (value === '')
      throw usageError(`The value of ${name} is empty, which the API does not take`, {
        hint: `nebo env unset ${name}`,
      });
    whole.push([name, value]);
  }
  return whole;
}

async function readValue(ctx: Context, name: string, secret: boolean): Promise<string> {
  if (ctx.prompts.possible)
    return secret ? ctx.prompts.askHidden(`${name} (hidden): `) : ctx.prompts.ask(`${name}: `);
  if (ctx.io.stdin.isTTY) throw missing('value', `${name}=value`);
  // The line end that every editor and `echo` adds is no part of the value; further ones are.
  return (await readAll(ctx.io.stdin)).replace(/\r?\n$/, '');
}

async function unset(ctx: Context, names: readonly string[]): Promise<void> {
  const id = await needAppId(ctx);
  const client = await ctx.client();
  const all = await client.list<V1EnvVar>(at`/apps/${id}/env`);
  // All names are looked up before the first removal: a typo must not leave half of the work done.
  const found = [...new Set(names)].map((name) => {
    const hit = all.find((one) => one.name === name);
    if (hit) return hit;
    const known = all.map((one) => one.name);
    const near = nearest(name, known, 5);
    throw new CliError(
      exitCodes.notFound,
      'not_found',
      `The app has no variable "${name}"; nothing was removed`,
      {
        lines: near.length > 0 ? [`Nearest: ${near.join(', ')}`] : [],
        hint: 'nebo env list',
        extra: { candidates: near },
      },
    );
  });
  for (const one of found) await client.remove(at`/apps/${id}/env/${one.id}`);
  ctx.talk.notice(`Removed ${found.map(({ name }) => name).join(', ')}; the replicas restart.`);
}
