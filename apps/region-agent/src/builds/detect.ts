import { posix } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { type Toolchain } from '../system/toolchain.js';
import { type BuildPlan, type Look } from './plan.js';
import { webCommand } from './procfile.js';
import { stacks } from './stacks/index.js';
import { BuildFailure, type SourceTree } from './tree.js';

/**
 * Says how to build a source: the first stack that knows it, or the one that `framework` names. Explicit commands win over
 * what was found, one by one.
 * @param engine whether a container engine answers; only asked where there is a Dockerfile
 * @throws BuildFailure that says what was looked for, or what this region lacks
 */
export async function detect(
  tree: SourceTree,
  spec: BuildSpec,
  tools: Toolchain,
  engine: () => Promise<boolean> = () => Promise.resolve(false),
): Promise<BuildPlan> {
  const appDir = spec.root_directory ? await tree.folder('root_directory', spec.root_directory) : '.';
  if ((await tree.list('.')).length === 0)
    throw new BuildFailure(
      'The source is empty: there is no file in it. Push or upload something to deploy.',
    );
  const start = spec.start_command ?? webCommand(await tree.read(posix.join(appDir, 'Procfile')));
  const look: Look = { tree, spec, appDir, tools, engine, start, asked: false };
  const wanted = spec.framework?.trim().toLowerCase() ?? '';
  const named = stacks.find(({ names }) => names.includes(wanted));
  const notes = wanted !== '' && !named ? [unknownFramework(wanted)] : [];
  const plan = named ? await named.detect({ ...look, asked: true }) : await firstOf(look);
  if (plan === null)
    throw nothingFound(appDir, (await tree.has(posix.join(appDir, 'package.json'))) ? 'package' : 'none');
  return overridden({ ...plan, notes: [...notes, ...plan.notes] }, spec);
}

async function firstOf(look: Look): Promise<BuildPlan | null> {
  for (const stack of stacks) {
    const plan = await stack.detect(look);
    if (plan !== null) return plan;
  }
  return null;
}

/** The user's commands in place of those that were found; what an unknown command installs cannot be known to be the same. */
function overridden(plan: BuildPlan, spec: BuildSpec): BuildPlan {
  if (plan.container) return plan;
  const { install_command: install, build_command: build } = spec;
  return {
    ...plan,
    install: install ?? plan.install,
    build: build ?? plan.build,
    caches: install === null ? plan.caches : { ...plan.caches, installed: null },
  };
}

const unknownFramework = (name: string): string =>
  `note: framework "${name}" is not known here, so the files decide. Known: ${stacks.flatMap(({ names }) => names).join(', ')}`;

function nothingFound(appDir: string, found: 'package' | 'none'): BuildFailure {
  const where = appDir === '.' ? 'the source' : `root_directory "${appDir}"`;
  if (found === 'package')
    return new BuildFailure(
      `package.json in ${where} has neither a build nor a start script nor a "main" file, and there is no index.html ` +
        'or public folder either. Add a start script, or set build_command, start_command or output_directory.',
    );
  return new BuildFailure(
    `Nothing to build or serve was found in ${where}: looked for package.json, go.mod, requirements.txt, pyproject.toml, ` +
      'manage.py, server.js, index.html and a public folder. Set root_directory, build_command, start_command or ' +
      'output_directory.',
  );
}
