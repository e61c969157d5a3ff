import type { V1App, V1Project } from '@nebo/contracts';
import { at, type ApiClient, type Query } from '../http/client.js';
import { type Context } from './context.js';
import { CliError, usageError } from './errors.js';
import { exitCodes } from './exit-codes.js';
import { isId } from './ids.js';
import { missing } from './prompts.js';
import { nearest } from './suggest.js';

/**
 * The one record of a list with exactly this name (4-client-behaviours.md "Name resolution").
 * @throws CliError exit 5 with near names for none, exit 2 with the ids for two
 */
export function pickByName<T extends { id: string; name: string }>(
  kind: string,
  wanted: string,
  all: readonly T[],
): T {
  const hits = all.filter(({ name }) => name === wanted);
  if (hits.length === 1) return hits[0]!;
  if (hits.length > 1) {
    throw usageError(`There are ${hits.length} ${kind}s named "${wanted}"; give the id`, {
      lines: hits.map(({ id }) => id),
      extra: { ids: hits.map(({ id }) => id) },
    });
  }
  const near = nearest(
    wanted,
    all.map(({ name }) => name),
    5,
  );
  const candidates = near.length > 0 ? near : all.slice(0, 5).map(({ name }) => name);
  throw new CliError(
    exitCodes.notFound,
    'not_found',
    `There is no ${kind} named "${wanted}" that this key can see`,
    {
      lines:
        candidates.length > 0
          ? [`${near.length > 0 ? 'Nearest' : `There are`}: ${candidates.join(', ')}`]
          : [],
      hint: `nebo ${kind} list`,
      extra: { candidates },
    },
  );
}

/** All projects. */
export const projectsOf = (client: ApiClient): Promise<V1Project[]> => client.list<V1Project>('/projects');

/** The id of a project given by name or id. @throws CliError exit 5 or 2 */
export async function projectId(client: ApiClient, reference: string): Promise<string> {
  return isId(reference) ? reference : pickByName('project', reference, await projectsOf(client)).id;
}

/** The project that was set somewhere, as an id, or null. */
export async function projectInUse(ctx: Context, withLink = true): Promise<string | null> {
  const reference = await ctx.projectReference(withLink);
  return reference === null ? null : projectId(await ctx.client(), reference);
}

/**
 * A project that must be known: set somewhere, the only one there is, or asked for.
 * @throws CliError usage that lists the choices where nobody can be asked
 */
export async function needProject(ctx: Context, withLink = true): Promise<string> {
  const known = await projectInUse(ctx, withLink);
  if (known !== null) return known;
  const projects = await projectsOf(await ctx.client());
  if (projects.length === 0)
    throw missing(
      'project',
      '--project NAME (or NEBO_PROJECT). The key sees no project; one is made with: nebo project create NAME',
    );
  if (projects.length === 1) {
    ctx.talk.notice(`Project: ${projects[0]!.name} (the only one)`);
    return projects[0]!.id;
  }
  const label = ({ name, id }: V1Project) => `${name} (${id})`;
  return (await ctx.prompts.choose('project', '--project NAME (or NEBO_PROJECT)', projects, label)).id;
}

/** All apps that the key sees, of one project when one is set. */
export function appsOf(client: ApiClient, project: string | null): Promise<V1App[]> {
  const query: Query = project === null ? {} : { project_id: project };
  return client.list<V1App>('/apps', query);
}

/** An app given by name or id. @throws CliError */
export async function readApp(ctx: Context, reference: string): Promise<V1App> {
  const client = await ctx.client();
  if (isId(reference)) return client.get<V1App>(at`/apps/${reference}`);
  // By name the flat list is asked: a key without rights on projects must find its app too. The link is that of
  // another app when a name is given, so its project does not narrow the search.
  return pickByName('app', reference, await appsOf(client, await projectInUse(ctx, false)));
}

/** The id of the app that a command is about: argument, `--app`, `NEBO_APP`, link. @throws CliError */
export async function needAppId(ctx: Context, argument?: string): Promise<string> {
  const reference = argument ?? ctx.appReference();
  if (reference !== null) return isId(reference) ? reference : (await readApp(ctx, reference)).id;
  const link = await ctx.link();
  if (link) return link.app_id;
  const client = await ctx.client();
  const apps = await appsOf(client, await projectInUse(ctx));
  const label = ({ name, id }: V1App) => `${name} (${id})`;
  return (
    await ctx.prompts.choose(
      'app',
      '--app NAME (or NEBO_APP, or link the folder: nebo app link)',
      apps,
      label,
    )
  ).id;
}
