import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { V1App, V1AppDeployResult, V1Build } from '@nebo/contracts';
import { type Context } from '../core/context.js';
import { size, spoken } from '../core/duration.js';
import { usageError } from '../core/errors.js';
import { flag, type CommandSpec, type Options } from '../core/program.js';
import { addressOf } from '../deploy/address.js';
import { packToFile, printPlan, tellPacked, type PackedFile } from '../deploy/archive.js';
import { followBuild } from '../deploy/follow.js';
import { findTarget, settleTarget, type Target } from '../deploy/target.js';
import { at, type ApiClient } from '../http/client.js';

/** `nebo deploy`: a folder, an image or a commit becomes what the app serves. */
export const deploy: CommandSpec = {
  usage: 'deploy [FOLDER]',
  summary: 'deploy a folder (or build an app from git or an image) and wait until it serves',
  example: 'nebo deploy ./site --project shop',
  notes: `The folder's app is the one of --app, of its link (.nebo-link.json) or of its name in the project; a new one is
made and the folder linked to it. Never sent: .git, .nebo*, node_modules, .env and .env.* (but .env.example).
Further rules: .neboignore, or else .gitignore. Exit 0 means that the deploy is live; stdout is its address.`,
  flags: [
    flag('--name <NAME>', 'name of a new app; the name of the folder without it'),
    flag('--type <TYPE>', 'type of a new app: frontend (default), backend, function'),
    flag('--commit <SHA>', 'build this commit (git apps)'),
    flag('--image <REF>', 'deploy this image (Docker image apps)'),
    flag('--no-wait', 'return at once with the id of the build'),
    flag('--dry-run', 'list what would be sent, send nothing'),
    flag('--no-gitignore', 'send what .gitignore leaves out, such as a built folder in CI'),
  ],
  waits: true,
  run: (ctx, [folder], options) => run(ctx, folder as string | undefined, options),
};

async function run(ctx: Context, given: string | undefined, options: Options): Promise<void> {
  const folder = resolve(ctx.io.cwd, given ?? '.');
  const info = await stat(folder).catch(() => null);
  if (!info?.isDirectory())
    throw usageError(info ? `${folder} is not a folder` : `There is no folder ${folder}`);
  const commit = options['commit'] as string | undefined;
  const image = options['image'] as string | undefined;
  if (commit !== undefined && image !== undefined)
    throw usageError('--commit is for git apps, --image for Docker image apps: give one of them');
  const gitignore = options['gitignore'] !== false;
  if (options['dryRun']) return dryRun(ctx, folder, gitignore);

  const target = await findTarget(ctx, folder, options['name'] as string | undefined);
  const client = await ctx.client();
  let app: V1App;
  let started: V1AppDeployResult;
  const source = target.kind === 'app' ? target.app.source_type : 'upload';
  checkSource(target, source, { folder: given, commit, image });
  if (source === 'upload')
    ({ app, started } = await sendFolder(
      ctx,
      client,
      target,
      folder,
      gitignore,
      options['type'] as string | undefined,
    ));
  else {
    app = (target as { app: V1App }).app;
    if (image !== undefined) await client.write('PATCH', at`/apps/${app.id}`, { docker_image: image });
    started = await client.write<V1AppDeployResult>(
      'POST',
      at`/apps/${app.id}/deploy`,
      commit === undefined ? {} : { commit_sha: commit },
    );
  }
  ctx.talk.notice(`Build ${started.id} of app ${app.name} is ${started.status}.`);
  if (options['wait'] === false) {
    if (ctx.print.structured) return ctx.print.value(started);
    return ctx.print.line(started.id);
  }
  const began = Date.now();
  const live = await followBuild(
    ctx,
    client,
    app.id,
    started.id,
    `nebo build show ${started.id} --app ${app.id}`,
  );
  await printLive(ctx, client, app, live, Date.now() - began);
}

async function dryRun(ctx: Context, folder: string, gitignore: boolean): Promise<void> {
  const packed = await packToFile(folder, gitignore, ctx.interrupt);
  try {
    await printPlan(ctx, packed);
    tellPacked(ctx, packed);
    ctx.talk.notice('Nothing was sent (--dry-run).');
  } finally {
    await packed.remove();
  }
}

function checkSource(
  target: Target,
  source: string,
  given: { folder?: string | undefined; commit?: string | undefined; image?: string | undefined },
): void {
  const name = target.kind === 'app' ? target.app.name : target.name;
  const refuse = (what: string) => usageError(`${what}: the source of app "${name}" is ${source}`);
  if (given.commit !== undefined && source !== 'git') throw refuse('--commit is for git apps');
  if (given.image !== undefined && source !== 'docker_image')
    throw refuse('--image is for Docker image apps');
  if (given.folder !== undefined && source !== 'upload') throw refuse('A folder cannot be sent');
}

async function sendFolder(
  ctx: Context,
  client: ApiClient,
  target: Target,
  folder: string,
  gitignore: boolean,
  appType: string | undefined,
): Promise<{ app: V1App; started: V1AppDeployResult }> {
  // Packed before the app is made: a folder that is too big leaves nothing behind.
  const packed = await packToFile(folder, gitignore, ctx.interrupt);
  try {
    tellPacked(ctx, packed);
    const app = await settleTarget(ctx, target, folder, appType);
    return { app, started: await upload(ctx, client, app, packed) };
  } finally {
    await packed.remove();
  }
}

async function upload(
  ctx: Context,
  client: ApiClient,
  app: V1App,
  packed: PackedFile,
): Promise<V1AppDeployResult> {
  const began = Date.now();
  const started = await client.upload<V1AppDeployResult>(
    at`/apps/${app.id}/deployments`,
    packed.path,
    'application/gzip',
    (sent) => {
      const part = Math.floor((sent / packed.bytes) * 20);
      ctx.talk.status(`[${'#'.repeat(part).padEnd(20, '.')}] ${size(sent)} of ${size(packed.bytes)}`);
    },
  );
  ctx.talk.notice(`Sent ${size(packed.bytes)} in ${spoken(Date.now() - began)}.`);
  return started;
}

async function printLive(
  ctx: Context,
  client: ApiClient,
  app: V1App,
  live: V1Build,
  ms: number,
): Promise<void> {
  ctx.talk.notice(`Live after ${spoken(ms)}.`);
  if (ctx.print.structured || ctx.print.format === 'name') return ctx.print.record(live);
  const address = await addressOf(client, app.id);
  if (address) ctx.print.line(address);
  else ctx.talk.notice(`The app has no address yet: nebo app show ${app.id}`);
}
