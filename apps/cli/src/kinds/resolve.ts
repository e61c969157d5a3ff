import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { isId } from '../core/ids.js';
import { needAppId, needProject } from '../core/resolve.js';
import { nearest } from '../core/suggest.js';
import { fillPath } from '../contract/find.js';
import { pathParameters } from '../contract/table.js';
import { field } from '../output/table.js';
import { type Kind, kinds, type KindWord, type Row } from './kinds.js';

/** Records that one request may ask for. */
const largestPage = 200;

/**
 * The ids in a path: those that are known, and of the app and project that flags, environment and link name.
 * @throws CliError usage for one that nobody named
 */
export async function idsFor(
  ctx: Context,
  path: string,
  known: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  const ids = { ...known };
  for (const name of pathParameters(path)) {
    if (ids[name] !== undefined) continue;
    if (name === 'app_id') ids[name] = await needAppId(ctx);
    else if (name === 'project_id') ids[name] = await needProject(ctx);
    else throw usageError(`The ${name.replace(/_id$/, '').replaceAll('_', ' ')} is needed`);
  }
  return ids;
}

/**
 * All of a kind, or the first of them. Lists that have no pages are one answer.
 * @throws CliError
 */
export async function allOf(
  ctx: Context,
  path: string,
  ids: Readonly<Record<string, string>>,
  query: Readonly<Record<string, string>> = {},
  limit?: number,
): Promise<Row[]> {
  const client = await ctx.client();
  const filled = fillPath(path, await idsFor(ctx, path, ids));
  if (path === kinds.IMAGE.list) return (await client.get<{ images: Row[] }>(filled, query)).images;
  if (limit === undefined || limit > largestPage)
    return (await client.list<Row>(filled, query)).slice(0, limit);
  return (await client.get<{ data: Row[] }>(filled, { ...query, limit, offset: 0 })).data;
}

/** The id of a thing given by name or id. @throws CliError exit 5 with near names, exit 2 for two of one name */
export async function idOf(
  ctx: Context,
  word: KindWord,
  reference: string,
  ids: Readonly<Record<string, string>>,
): Promise<string> {
  if (isId(reference)) return reference;
  if (word === 'APP') return needAppId(ctx, reference);
  return String((await oneOf(ctx, word, reference, ids))['id']);
}

/** The same as a record. */
export async function oneOf(
  ctx: Context,
  word: KindWord,
  reference: string,
  ids: Readonly<Record<string, string>>,
): Promise<Row> {
  const { list, names }: Kind = kinds[word];
  const what = word.toLowerCase();
  if (names.length === 0 && !isId(reference))
    throw usageError(`A ${what} is named by its id, not "${reference}"`, { hint: `nebo ${what} list` });
  const all = await allOf(ctx, list, ids);
  const called = (row: Row) => names.map((name) => String(field(row, name) ?? ''));
  const same = (word === 'RECORD' ? await inZone(ctx, reference, ids) : reference)
    .toLowerCase()
    .replace(/\.$/, '');
  const hits = all.filter(
    (row) =>
      row['id'] === reference || called(row).some((name) => name.toLowerCase().replace(/\.$/, '') === same),
  );
  if (hits.length === 1) return hits[0]!;
  if (hits.length > 1) {
    const found = hits.map((row) => String(row['id']));
    throw usageError(`There are ${hits.length} of the name "${reference}"; give the id`, {
      lines: hits.map((row) =>
        `${String(row['id'])}  ${String(row['type'] ?? row['status'] ?? '')}`.trimEnd(),
      ),
      extra: { ids: found },
    });
  }
  const known = all.flatMap(called).filter((name) => name !== '');
  const near = nearest(reference, known, 5);
  const candidates = near.length > 0 ? near : known.slice(0, 5);
  throw new CliError(
    exitCodes.notFound,
    'not_found',
    `There is no ${what} "${reference}" that this key can see`,
    {
      lines:
        candidates.length > 0
          ? [`${near.length > 0 ? 'Nearest' : 'There are'}: ${candidates.join(', ')}`]
          : [],
      extra: { candidates },
    },
  );
}

/** `www` and `@` as the names that they are in a zone. */
async function inZone(ctx: Context, name: string, ids: Readonly<Record<string, string>>): Promise<string> {
  if (name.endsWith('.')) return name;
  const client = await ctx.client();
  const zone = await client.get<{ name: string }>(fillPath('/dns/zones/{zone_id}', ids));
  const bare = zone.name.replace(/\.$/, '');
  if (name === '@') return bare;
  const lower = name.toLowerCase();
  return lower === bare || lower.endsWith(`.${bare}`) ? name : `${name}.${bare}`;
}

/** What a thing is called, for a question. */
export function nameOf(word: KindWord, row: Row): string {
  const { names }: Kind = kinds[word];
  return names
    .map((name) => field(row, name))
    .find((name) => typeof name === 'string' && name !== '') as string;
}
