import type { V1Project } from '@nebo/contracts';
import { writeConfig } from '../core/config.js';
import { type Context } from '../core/context.js';
import { isId } from '../core/ids.js';
import { type GroupSpec } from '../core/program.js';
import { needProject, pickByName, projectsOf } from '../core/resolve.js';
import { usageError } from '../core/errors.js';
import { at } from '../http/client.js';

/** `nebo project`. */
export const project: GroupSpec = {
  name: 'project',
  summary: 'projects',
  commands: [
    {
      usage: 'list',
      alias: 'ls',
      summary: 'all projects that the key sees',
      example: 'nebo project list',
      async run(ctx) {
        await ctx.print.list(await projectsOf(await ctx.client()), [
          { key: 'name' },
          { key: 'id' },
          { key: 'description' },
          { key: 'emoji', wide: true },
        ]);
      },
    },
    {
      usage: 'show [PROJECT]',
      alias: 'get',
      summary: 'one project',
      example: 'nebo project show shop',
      async run(ctx, [name]) {
        await ctx.print.record(await readProject(ctx, name as string | undefined));
      },
    },
    {
      usage: 'use <PROJECT>',
      summary: 'the project of this profile, for commands that are told no other',
      example: 'nebo project use shop',
      run: (ctx, [name]) => use(ctx, String(name)),
    },
  ],
};

async function readProject(ctx: Context, reference: string | undefined): Promise<V1Project> {
  const client = await ctx.client();
  if (reference !== undefined && !isId(reference))
    return pickByName('project', reference, await projectsOf(client));
  return client.get<V1Project>(at`/projects/${reference ?? (await needProject(ctx))}`);
}

async function use(ctx: Context, reference: string): Promise<void> {
  const { config, configPath, profileName, profile, apiUrl } = await ctx.account();
  if (!profile && Object.hasOwn(config.profiles, profileName)) {
    throw usageError(
      `Profile "${profileName}" belongs to ${config.profiles[profileName]!.api_url}, but the address in use is ${apiUrl}`,
      {
        hint: 'Log in to that address under another name first: nebo auth login --profile NAME --api-url …',
      },
    );
  }
  const found = await readProject(ctx, reference);
  config.profiles[profileName] = { ...(profile ?? { api_url: apiUrl }), project_id: found.id };
  await writeConfig(configPath, config);
  ctx.talk.notice(`Profile "${profileName}" uses project ${found.name} (${found.id}).`);
  if (ctx.print.structured) await ctx.print.value(found);
}
