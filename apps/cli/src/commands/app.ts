import { realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { V1App } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { usageError } from '../core/errors.js';
import { linkName, readLink, removeLink, writeLink } from '../core/link.js';
import { flag, type GroupSpec, type Options } from '../core/program.js';
import { appsOf, needAppId, needProject, projectInUse, readApp } from '../core/resolve.js';
import { addressOf } from '../deploy/address.js';
import { at } from '../http/client.js';
import { type Column } from '../output/table.js';

const columns: readonly Column<V1App>[] = [
  { key: 'name' },
  { key: 'status' },
  { key: 'deploy_state' },
  { key: 'source_type' },
  { key: 'replica_count' },
  { key: 'id' },
  { key: 'project_id', wide: true },
  { key: 'app_type', wide: true },
  { key: 'cluster_id', wide: true },
  { key: 'created_at', wide: true },
];

/** `nebo app`. */
export const app: GroupSpec = {
  name: 'app',
  summary: 'apps',
  commands: [
    {
      usage: 'list',
      alias: 'ls',
      summary: 'all apps that the key sees, of one project when one is set',
      example: 'nebo app list --project shop',
      flags: [flag('--all', 'of all projects, also when a project is set')],
      async run(ctx, _args, options) {
        const project = options['all'] ? null : await projectInUse(ctx);
        await ctx.print.list(await appsOf(await ctx.client(), project), columns);
      },
    },
    {
      usage: 'create [NAME]',
      summary: 'make an app; nothing is built yet',
      example: 'nebo app create web --project shop',
      notes: 'Without --image and --repo the app takes folders: nebo deploy.',
      flags: [
        flag('--type <TYPE>', 'frontend (default), backend, function'),
        flag('--image <REF>', 'an app from a Docker image'),
        flag('--repo <OWNER/NAME>', 'an app from a git repository'),
        flag('--branch <BRANCH>', 'branch of the repository'),
        flag('--git-provider <HOST>', 'github (default), gitlab, gitea, gitverse, gitflic'),
        flag('--connection <ID>', 'connection to the git host'),
        flag('--region <ID>', 'region; cannot change later'),
        flag('--replicas <N>', 'replicas that always run; 0 = on demand'),
        flag('--readiness-path <PATH>', 'a replica serves after this path answers 2xx or 3xx'),
        flag('--link', 'link the working folder to the app'),
      ],
      run: (ctx, [name], options) => create(ctx, name as string | undefined, options),
    },
    {
      usage: 'show [APP]',
      alias: 'get',
      summary: 'one app; the linked one when none is named',
      example: 'nebo app show web',
      run: (ctx, [name]) => show(ctx, name as string | undefined),
    },
    {
      usage: 'link [APP]',
      summary: `link the working folder to an app (${linkName})`,
      example: 'nebo app link web',
      run: (ctx, [name]) => link(ctx, name as string | undefined),
    },
    {
      usage: 'unlink',
      summary: 'remove the link of the working folder; the app stays',
      example: 'nebo app unlink',
      async run(ctx) {
        const was = await readLink(ctx.io.cwd).catch(() => true);
        await removeLink(ctx.io.cwd);
        ctx.talk.notice(
          was ? `Removed ${join(ctx.io.cwd, linkName)}; the app stays.` : 'This folder is not linked.',
        );
      },
    },
  ],
};

async function create(ctx: Context, named: string | undefined, options: Options): Promise<void> {
  const text = (name: string) => options[name] as string | undefined;
  if (text('image') !== undefined && text('repo') !== undefined)
    throw usageError('An app comes from --image or from --repo, not from both');
  const replicas = text('replicas');
  if (replicas !== undefined && !/^\d+$/.test(replicas))
    throw usageError(`--replicas is a whole number, not "${replicas}"`);
  const name = named ?? basename(await realpath(ctx.io.cwd));
  if (options['link']) await refuseOtherLink(ctx);
  const project = await needProject(ctx, false);
  const client = await ctx.client();
  const source = text('image') !== undefined ? 'docker_image' : text('repo') !== undefined ? 'git' : 'upload';
  const made = await client.write<V1App>('POST', at`/projects/${project}/apps`, {
    name,
    source_type: source,
    app_type: text('type'),
    docker_image: text('image'),
    repo_full_name: text('repo'),
    branch: text('branch'),
    git_provider: text('gitProvider'),
    git_connection_id: text('connection'),
    cluster_id: text('region'),
    readiness_path: text('readinessPath'),
    replica_count: replicas === undefined ? undefined : Number(replicas),
  });
  if (options['link']) await linkTo(ctx, made);
  ctx.talk.notice(
    source === 'upload'
      ? `Made. Send a folder: nebo deploy FOLDER --app ${made.name}`
      : `Made. Build it: nebo deploy --app ${made.name}`,
  );
  await ctx.print.record(made);
}

async function show(ctx: Context, reference: string | undefined): Promise<void> {
  const client = await ctx.client();
  const found = await client.get<V1App>(at`/apps/${await needAppId(ctx, reference)}`);
  if (ctx.print.structured || ctx.flags.columns) return ctx.print.record(found);
  await ctx.print.record(found, { address: await addressOf(client, found.id) });
}

async function link(ctx: Context, reference: string | undefined): Promise<void> {
  // The link to be replaced must not answer the question which app it shall be.
  const asked = reference ?? ctx.appReference();
  const found = asked === null ? await chooseApp(ctx) : await readApp(ctx, asked);
  await linkTo(ctx, found);
  if (ctx.print.structured) await ctx.print.value(found);
}

async function chooseApp(ctx: Context): Promise<V1App> {
  const apps = await appsOf(await ctx.client(), await projectInUse(ctx, false));
  return ctx.prompts.choose('app', 'nebo app link APP, or --app', apps, ({ name, id }) => `${name} (${id})`);
}

async function linkTo(ctx: Context, { id, project_id, name }: V1App): Promise<void> {
  const { apiUrl } = await ctx.account();
  await writeLink(ctx.io.cwd, { api_url: apiUrl, project_id, app_id: id });
  ctx.talk.notice(`${join(ctx.io.cwd, linkName)} links this folder to app ${name}.`);
}

/** `app create --link` in a linked folder would silently point it elsewhere. */
async function refuseOtherLink(ctx: Context): Promise<void> {
  if (await readLink(ctx.io.cwd)) {
    throw usageError(`This folder is linked already (${linkName})`, {
      hint: 'Leave --link out, or remove the link first: nebo app unlink',
    });
  }
}
