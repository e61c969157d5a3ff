import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { checkBody } from '../contract/fields.js';
import { fillPath } from '../contract/find.js';
import { type ContractTable, isPaged, pathParameters, type TableOperation } from '../contract/table.js';
import { type Context } from '../core/context.js';
import { usageError } from '../core/errors.js';
import { type CommandSpec, flag, type Options } from '../core/program.js';
import { readAll } from '../core/stdin.js';
import { followBuild } from '../deploy/follow.js';
import { jsonBody } from '../http/client.js';
import { type FlagField, flagFields, optionsOf, valuesOf } from './flags.js';
import { type Kind, kinds, type KindWord, type Row } from './kinds.js';
import { allOf, idOf, idsFor, nameOf, oneOf } from './resolve.js';
import { type Verb } from './verbs.js';
import { waitFor } from './wait.js';

/** One word of a usage line. */
type Word =
  | { is: 'thing'; kind: KindWord; word: string }
  | { is: 'field'; field: string; word: string }
  | { is: 'file'; field: string; word: string };

function wordOf(text: string): Word {
  const bare = text.replace(/^\[(.*)\]$/, '$1');
  const match = /^(\w+)([=<])(\w+)$/.exec(bare);
  if (match) return { is: match[2] === '=' ? 'field' : 'file', field: match[3]!, word: match[1]! };
  return { is: 'thing', kind: bare as KindWord, word: bare };
}

interface Prepared {
  verb: Verb;
  group: string;
  operation: TableOperation;
  table: ContractTable;
  words: readonly Word[];
  fields: readonly FlagField[];
}

/**
 * A line of the table as a command.
 * @returns null when the contract has no such operation
 */
export function commandOf(group: string, verb: Verb, table: ContractTable): CommandSpec | null {
  const [method, path] = verb.call.split(' ') as [string, string];
  const operation = table.operations.find((one) => one.method === method && one.path === path);
  if (!operation) return null;
  const [name, ...texts] = verb.usage.split(' ');
  const words = texts.map(wordOf);
  const taken = words.flatMap((word) => (word.is === 'thing' ? [] : [word.field]));
  const without = [...taken, ...Object.keys(verb.preset ?? {}), ...(verb.hidden ?? [])];
  const fields = verb.fromList === undefined ? flagFields(table, operation, without) : [];
  const prepared: Prepared = { verb, group, operation, table, words, fields };
  const own = [
    ...(isPaged(operation) && verb.rows ? [flag('--limit <N>', 'only the first N')] : []),
    ...(verb.wait ? [flag('--no-wait', 'return at once; the work goes on')] : []),
  ];
  return {
    usage: [
      name,
      ...texts.map((text, index) =>
        text.startsWith('[') ? `[${words[index]!.word}]` : `<${words[index]!.word}>`,
      ),
    ].join(' '),
    ...(verb.alias ? { alias: verb.alias } : {}),
    summary: verb.summary,
    example: verb.example,
    notes: [verb.notes ?? '', `The same by hand: nebo api --describe ${verb.call}`]
      .filter((one) => one !== '')
      .join('\n'),
    flags: [...optionsOf(fields), ...own],
    ...(verb.wait ? { waits: true } : {}),
    run: (ctx, args, options) => run(ctx, prepared, args as readonly (string | undefined)[], options),
  };
}

async function run(
  ctx: Context,
  prepared: Prepared,
  args: readonly (string | undefined)[],
  options: Options,
): Promise<void> {
  const { verb, operation, words, fields } = prepared;
  const given = await readWords(ctx, words, args);
  const limit = limitOf(options);
  const ids = await namedIds(ctx, prepared, given.things);
  const path = fillPath(operation.path, ids);
  const { query, body: flagged } = await valuesOf(ctx, fields, options, ids);
  if (verb.fromList !== undefined) {
    const word = verb.fromList as KindWord;
    return ctx.print.record(await oneOf(ctx, word, given.things[word]!, ids));
  }
  if (verb.rows !== undefined) {
    const { columns }: Kind = kinds[verb.rows as KindWord];
    return ctx.print.list(await allOf(ctx, operation.path, ids, query, limit), columns);
  }
  const body = bodyOf(prepared, { ...verb.preset, ...given.fields, ...flagged });
  if (verb.ask !== undefined) await ask(ctx, verb, ids, given.things);
  const client = await ctx.client();
  const answer = await client.ok({ method: operation.method, path, query, ...jsonBody(body) });
  const record = answer.text === '' ? null : (JSON.parse(answer.text) as Row);
  await finish(ctx, prepared, ids, record, options['wait'] !== false);
}

/** What the arguments say: names of things, and fields of the body. */
async function readWords(
  ctx: Context,
  words: readonly Word[],
  args: readonly (string | undefined)[],
): Promise<{ things: Record<string, string>; fields: Record<string, unknown> }> {
  const things: Record<string, string> = {};
  const fields: Record<string, unknown> = {};
  for (const [index, word] of words.entries()) {
    const text = args[index];
    if (text === undefined) continue;
    if (word.is === 'thing') things[word.kind] = text;
    else if (word.is === 'field') fields[word.field] = text;
    else fields[word.field] = (await fileText(ctx, text)).trim();
  }
  return { things, fields };
}

async function fileText(ctx: Context, name: string): Promise<string> {
  if (name === '-') return readAll(ctx.io.stdin);
  try {
    return await readFile(resolve(ctx.io.cwd, name), 'utf8');
  } catch {
    throw usageError(`There is no file ${name}`);
  }
}

/** Ids of everything in the path: named things from left to right, each looked up in the one before. */
async function namedIds(
  ctx: Context,
  { operation, words }: Prepared,
  things: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  let ids: Record<string, string> = {};
  // What a thing lies in comes from a flag where no argument names it.
  const outer = pathParameters(operation.path).filter((name) => name === 'app_id' || name === 'project_id');
  const named = words.flatMap((word) => (word.is === 'thing' ? [kinds[word.kind].id as string] : []));
  const implied = outer.filter((name) => !named.includes(name));
  if (implied.length > 0) ids = await idsFor(ctx, implied.map((name) => `/{${name}}`).join(''), ids);
  for (const word of words) {
    if (word.is !== 'thing' || things[word.kind] === undefined) continue;
    const { id }: Kind = kinds[word.kind];
    if (pathParameters(operation.path).includes(id))
      ids[id] = await idOf(ctx, word.kind, things[word.kind]!, ids);
  }
  return ids;
}

function limitOf(options: Options): number | undefined {
  const limit = options['limit'] as string | undefined;
  if (limit !== undefined && !/^[1-9]\d{0,8}$/.test(limit))
    throw usageError(`--limit is a number from 1, not "${limit}"`);
  return limit === undefined ? undefined : Number(limit);
}

/** The body, checked against the contract before anything is sent; a field that is a number there is one here. */
function bodyOf(
  { operation, table, group, verb }: Prepared,
  given: Readonly<Record<string, unknown>>,
): Record<string, unknown> | undefined {
  const name = operation.body?.record;
  if (name === undefined) return undefined;
  if (Object.keys(given).length === 0) {
    if (operation.method === 'PATCH')
      throw usageError('Nothing to change was said', {
        hint: `nebo ${group} ${verb.usage.split(' ')[0]} --help`,
      });
    if (!operation.body!.required) return undefined;
  }
  checkBody(table, operation, given);
  return { ...given };
}

/** A thing that goes for ever is named once more. @throws CliError usage where nobody can be asked, or the name differs */
async function ask(
  ctx: Context,
  { ask: word, summary }: Verb,
  ids: Readonly<Record<string, string>>,
  things: Readonly<Record<string, string>>,
): Promise<void> {
  if (ctx.early.yes) return;
  const kind = word as KindWord;
  const given = things[kind]!;
  if (!ctx.prompts.possible)
    throw usageError(`This asks for the name first (${summary}), and nobody can be asked here: say --yes`);
  const row = await oneOf(ctx, kind, ids[kinds[kind].id] ?? given, ids);
  const name = nameOf(kind, row) ?? given;
  const answer = await ctx.prompts.ask(`${summary}: "${name}". Type the name to go on: `);
  if (answer !== name) throw usageError('Nothing was done: that is not its name');
}

/** Waits where that is wanted, and prints what came of it. */
async function finish(
  ctx: Context,
  { verb, group }: Prepared,
  ids: Record<string, string>,
  record: Row | null,
  waits: boolean,
): Promise<void> {
  const { wait } = verb;
  let last = record;
  if (wait === 'build' && waits && record) {
    const [app, build] = [ids['app_id']!, String(record['id'])];
    last = (await followBuild(
      ctx,
      await ctx.client(),
      app,
      build,
      `nebo build show ${build} --app ${app}`,
    )) as unknown as Row;
  } else if (wait && wait !== 'build' && waits) {
    const all = wait.made === undefined || !record ? ids : { ...ids, [wait.made]: String(record['id']) };
    last = await waitFor(ctx, wait, all, `nebo ${group === 'job' ? 'run' : group} list`);
  }
  if (verb.says) ctx.talk.notice(verb.says);
  if (verb.prints !== undefined) {
    const text = String(last?.[verb.prints] ?? '');
    return ctx.print.structured
      ? ctx.print.value(text)
      : ctx.print.text(text === '' || text.endsWith('\n') ? text : `${text}\n`);
  }
  if (last) return ctx.print.record(last);
  ctx.talk.notice('Done.');
}
