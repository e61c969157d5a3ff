import { buildCommand, projectCaches, readProject } from '../../node/package-manager.js';
import { type PackageJson, readPackage } from '../../node/package-json.js';
import { chosenOutput, serverIn, siteFolder } from '../../outputs.js';
import { at, noCaches, quoted, type BuildOutput, type BuildPlan, type Look, type Stack } from '../../plan.js';
import { BuildFailure, type SourceTree } from '../../tree.js';

const mainFiles = ['server.js', 'server.mjs', 'index.js', 'index.mjs', 'app.js', 'main.js'];

const names = ['node', 'nodejs', 'node.js', 'express', 'fastify', 'koa', 'hono', 'nestjs', 'nest'];

/** A package with a start script, or with a build script that leaves a server or a site. */
export const node: Stack = {
  names,
  async detect(look) {
    const pkg = await readPackage(look.tree, look.appDir);
    if (pkg && (pkg.scripts['build'] !== undefined || pkg.scripts['start'] !== undefined))
      return ofPackage(look, pkg);
    return look.asked ? withoutScripts(look, pkg) : null;
  },
};

/** A file that starts a server, or commands of the user's beside a package: after languages that a source may be in. */
export const nodeFile: Stack = {
  names: [],
  async detect(look) {
    const pkg = await readPackage(look.tree, look.appDir);
    return withoutScripts(look, pkg);
  },
};

async function withoutScripts(look: Look, pkg: PackageJson | null): Promise<BuildPlan | null> {
  const { tree, spec, start, asked, appDir } = look;
  const main = await mainFile(tree, appDir, pkg);
  if (pkg !== null) {
    const explicit = [spec.install_command, spec.build_command, start].some((value) => value !== null);
    if (explicit || main !== null) return ofPackage(look, pkg);
    if (asked) throw nothingToStart(pkg);
    return null;
  }
  if (asked) {
    if (main === null && start === null) throw nothingToStart(null);
    return plain(look);
  }
  const site = (await tree.has(at(look, 'index.html'))) || (await tree.has(at(look, 'public'), 'folder'));
  const backend = spec.app_type === 'backend';
  // A lone index.js beside nothing else is a site's script more often than a server.
  if (main === null || start !== null || (!backend && (site || main === 'index.js'))) return null;
  return plain(look);
}

async function ofPackage(look: Look, pkg: PackageJson): Promise<BuildPlan> {
  const project = await readProject(look, pkg);
  return {
    ...plain(look),
    installDir: project.installDir,
    install: project.install,
    build: pkg.scripts['build'] === undefined ? null : await buildCommand(look, project, 'build'),
    caches: await projectCaches(look, project),
    output: () => output(look, pkg, project.installDir),
  };
}

function plain(look: Look): BuildPlan {
  const { appDir } = look;
  return {
    ...{ stack: 'node', appDir, installDir: appDir, install: null, build: null, after: null },
    ...{ node: true, notes: [], env: {}, caches: noCaches },
    output: () => output(look, null, appDir),
  };
}

/** The file that starts the server, from `main` or by its usual name. */
async function mainFile(tree: SourceTree, appDir: string, pkg: PackageJson | null): Promise<string | null> {
  for (const name of [...(pkg?.main ? [pkg.main] : []), ...mainFiles])
    if (!name.startsWith('/') && !name.startsWith('..') && (await tree.has(at({ appDir }, name))))
      return name;
  return null;
}

async function output(look: Look, pkg: PackageJson | null, installDir: string): Promise<BuildOutput> {
  const { tree, appDir, spec } = look;
  const chosen = await chosenOutput(look, installDir);
  if (chosen !== null) return chosen;
  if (pkg?.scripts['start'] !== undefined) return serverIn(installDir, appDir, 'npm start');
  const main = await mainFile(tree, appDir, pkg);
  const dir = spec.app_type === 'backend' ? null : await siteFolder(tree, appDir);
  // "main" of a package that is only built into a site is no server: a site that is there wins, unless main is named.
  if (main !== null && (pkg?.main || dir === null))
    return serverIn(installDir, appDir, `node ${quoted(main.replace(/^\.\//, ''))}`);
  if (dir !== null) return { kind: 'static', dir };
  if (spec.app_type === 'backend') throw nothingToStart(pkg);
  throw new BuildFailure(
    'The build left nothing to serve: looked for dist, build, out, public with an index.html, for a start script and ' +
      `for ${mainFiles.join(', ')}. Set output_directory or start_command.`,
  );
}

const nothingToStart = (pkg: PackageJson | null) =>
  new BuildFailure(
    `${pkg === null ? 'There is no package.json' : 'package.json has no start script'}, and nothing else to start was ` +
      `found: looked for start_command, a Procfile, "main" of package.json and ${mainFiles.join(', ')}.`,
  );
