import { realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { V1App } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { checkLink, linkName, readLink, writeLink } from '../core/link.js';
import { appsOf, needProject, projectInUse, readApp } from '../core/resolve.js';
import { at } from '../http/client.js';

/** Where a deploy goes: to an app that exists, or to one that is made when the folder is packed. */
export type Target =
  { kind: 'app'; app: V1App; linkFolder: boolean } | { kind: 'new'; name: string; project: string };

/**
 * Finds the app for a folder: `--app` and NEBO_APP, the folder's link, an app of the folder's name in the project.
 * @param folder absolute path
 * @param named `--name`
 * @throws CliError
 */
export async function findTarget(ctx: Context, folder: string, named: string | undefined): Promise<Target> {
  const reference = ctx.appReference();
  if (reference !== null) {
    if (named !== undefined)
      throw usageError('--name is for a new app, --app for one that exists: give one of them');
    try {
      return { kind: 'app', app: await readApp(ctx, reference), linkFolder: false };
    } catch (error) {
      if (error instanceof CliError && error.exit === exitCodes.notFound)
        throw error.withHint(`Make it with: nebo deploy --name ${reference}`);
      throw error;
    }
  }
  const { apiUrl } = await ctx.account();
  const link = await readLink(folder);
  if (link) return linkedTarget(ctx, folder, checkLink(link, folder, apiUrl), named);
  const name = named ?? basename(await realpath(folder));
  if (name === '') throw usageError('The folder has no name: say --name');
  const project = await needProject(ctx, false);
  return targetByName(ctx, name, project);
}

async function linkedTarget(
  ctx: Context,
  folder: string,
  link: { app_id: string; project_id: string },
  named: string | undefined,
): Promise<Target> {
  if (named !== undefined)
    throw usageError('This folder is linked to an app; --name is for a new one', {
      hint: 'nebo app unlink removes the link',
    });
  try {
    return {
      kind: 'app',
      app: await (await ctx.client()).get<V1App>(at`/apps/${link.app_id}`),
      linkFolder: false,
    };
  } catch (error) {
    // Only "there is no such app" offers a new one: making one after any other error would make doubles.
    if (
      !(error instanceof CliError) ||
      error.exit !== exitCodes.notFound ||
      error.more.extra?.['status'] !== 404
    )
      throw error;
    const gone = `The app ${link.app_id} that ${join(folder, linkName)} names is gone.`;
    if (!ctx.early.yes && !ctx.prompts.possible) {
      throw new CliError(exitCodes.notFound, 'linked_app_gone', gone, {
        requestId: error.more.requestId,
        hint: 'With --yes a new app is made; nebo app unlink removes the link.',
      });
    }
    if (!(await ctx.sure(`${gone} Make a new app?`))) throw error;
    const project = (await projectInUse(ctx, false)) ?? link.project_id;
    return targetByName(ctx, basename(await realpath(folder)), project);
  }
}

/** The upload app of this name, or a new one; an app with another source is never touched by a folder's name alone. */
async function targetByName(ctx: Context, name: string, project: string): Promise<Target> {
  const found = (await appsOf(await ctx.client(), project)).find(
    (app) => app.name === name && app.project_id === project,
  );
  if (!found) return { kind: 'new', name, project };
  if (found.source_type !== 'upload') {
    throw new CliError(
      exitCodes.conflict,
      'name_taken',
      `The project has an app "${name}" whose source is ${found.source_type}, not a folder`,
      {
        hint: `Another name: nebo deploy --name OTHER. To build that app: nebo deploy --app ${name}`,
      },
    );
  }
  if (
    ctx.prompts.possible &&
    !ctx.early.yes &&
    !(await ctx.prompts.confirm(`The project has an app "${name}" already. Deploy this folder to it?`))
  )
    throw usageError('Nothing was deployed', { hint: 'Another name: nebo deploy --name OTHER' });
  ctx.talk.notice(`Deploying to the app "${name}" that the project has already (${found.id}).`);
  return { kind: 'app', app: found, linkFolder: true };
}

/** Makes the app of a target when it is new, and links the folder before anything is sent, so that a retry finds it. */
export async function settleTarget(
  ctx: Context,
  target: Target,
  folder: string,
  appType: string | undefined,
): Promise<V1App> {
  if (target.kind === 'app' && !target.linkFolder) return target.app;
  const client = await ctx.client();
  let app: V1App;
  if (target.kind === 'app') app = target.app;
  else {
    const body = { name: target.name, source_type: 'upload', app_type: appType };
    app = await client.write<V1App>('POST', at`/projects/${target.project}/apps`, body);
    ctx.talk.notice(`Made app ${app.name} (${app.id}).`);
  }
  await writeLink(folder, { api_url: client.apiUrl, project_id: app.project_id, app_id: app.id });
  ctx.talk.notice(`${join(folder, linkName)} links the folder to it: keep it in git, it holds no secret.`);
  return app;
}
