import { posix } from 'node:path';
import { inRoot, projectCaches, readProject } from '../../node/package-manager.js';
import { readObject, readPackage } from '../../node/package-json.js';
import { chosenOutput, siteFolder } from '../../outputs.js';
import { at, quoted, type BuildOutput, type Look, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';

/** An app of an Nx workspace that has no package.json of its own: root_directory names it, Nx knows how to build it. */
export const nx: Stack = {
  names: ['nx'],
  async detect(look) {
    const { tree, appDir, asked } = look;
    const json = await readObject(tree, at(look, 'project.json'));
    const root = await nxRoot(look);
    const own = await tree.has(at(look, 'package.json'));
    if (json === null || root === null || own || appDir === '.') {
      if (!asked) return null;
      throw new BuildFailure(
        'framework asks for Nx: set root_directory to the folder of an app with a project.json, below the nx.json.',
      );
    }
    const pkg = await readPackage(tree, root);
    if (pkg === null) throw new BuildFailure('The workspace of Nx has no package.json beside its nx.json.');
    const project = await readProject({ ...look, appDir: root }, pkg);
    const name = typeof json['name'] === 'string' ? json['name'] : posix.basename(appDir);
    const inner = posix.relative(root === '.' ? '' : root, appDir);
    return {
      ...{ stack: 'nx', appDir, installDir: root, install: project.install },
      build: inRoot(inner, `npx nx build ${quoted(name)}`),
      ...{ after: null, node: true, notes: [], env: { NX_DAEMON: 'false' } },
      caches: await projectCaches(look, project),
      output: () => output(look, root, inner, json),
    };
  },
};

async function nxRoot({ tree, appDir }: Look): Promise<string | null> {
  for (let dir = appDir; ; dir = posix.dirname(dir)) {
    if (await tree.has(posix.join(dir, 'nx.json'))) return dir;
    if (dir === '.') return null;
  }
}

async function output(
  look: Look,
  root: string,
  inner: string,
  json: Record<string, unknown>,
): Promise<BuildOutput> {
  const { tree, appDir, spec } = look;
  const chosen = await chosenOutput(look, root);
  if (chosen !== null) return chosen;
  const folders = [outputPath(json, inner), `dist/${inner}`, `${inner}/dist`, `${inner}/out`];
  for (const folder of folders.filter((value) => value !== null)) {
    const dir = posix.join(root, folder);
    const main = ['main.js', 'main.mjs', 'index.js'].map((name) => posix.join(dir, name));
    for (const file of main)
      if (await tree.has(file))
        return { kind: 'server', dir: root, start: `node ${quoted(posix.relative(root, file))}` };
    const site =
      spec.app_type === 'backend' ? null : await siteFolder(tree, posix.dirname(dir), [posix.basename(dir)]);
    if (site !== null && site !== posix.dirname(dir)) return { kind: 'static', dir: site };
    if (await tree.has(posix.join(dir, '.next'), 'folder'))
      return { kind: 'server', dir: root, start: `./node_modules/.bin/next start ${quoted(folder)}` };
  }
  throw new BuildFailure(
    `Nx left nothing to serve for ${appDir}: looked for main.js and index.html in ${folders.join(', ')}. ` +
      'Set output_directory or start_command.',
  );
}

/** `targets.build.options.outputPath`, relative to the workspace's root. */
function outputPath(json: Record<string, unknown>, inner: string): string | null {
  const path = ['targets', 'build', 'options', 'outputPath'].reduce<unknown>(
    (value, key) =>
      typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : null,
    json,
  );
  if (typeof path !== 'string') return null;
  const clean = posix.normalize(
    path
      .replace('{workspaceRoot}/', '')
      .replace('{projectRoot}', inner)
      .replace(/^\.?\//, ''),
  );
  return clean.startsWith('..') ? null : clean;
}
