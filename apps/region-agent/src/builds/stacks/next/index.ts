import { buildCommand, projectCaches, readProject } from '../../node/package-manager.js';
import { readPackage } from '../../node/package-json.js';
import { chosenOutput, serverIn, siteFolder } from '../../outputs.js';
import { at, quoted, type BuildOutput, type Look, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';

/** Next.js: a static export, a standalone server, or `next start`. */
export const next: Stack = {
  names: ['next', 'nextjs', 'next.js'],
  async detect(look) {
    const { tree, appDir, asked } = look;
    const pkg = await readPackage(tree, appDir);
    if (pkg?.dependencies['next'] === undefined) {
      if (!asked) return null;
      throw new BuildFailure('framework asks for Next.js, but package.json has no dependency "next".');
    }
    const project = await readProject(look, pkg);
    const caches = await projectCaches(look, project);
    const script = pkg.scripts['build'] !== undefined;
    const built = script ? await buildCommand(look, project, 'build') : 'npx next build';
    return {
      ...{ stack: 'next', appDir, installDir: project.installDir, install: project.install },
      build: built,
      after: placeStandalone,
      node: true,
      notes: [],
      env: { NEXT_TELEMETRY_DISABLED: '1' },
      caches: { ...caches, tree: [{ name: 'next', path: at(look, '.next/cache') }] },
      output: () => output(look, project.installDir, pkg.scripts['start'] !== undefined),
    };
  },
};

/** A standalone server lies there without the files that browsers fetch: its documentation leaves the copying to the host. */
const placeStandalone =
  '[ -d .next/standalone ] || exit 0; ' +
  `app=$(node -p "require('./.next/required-server-files.json').relativeAppDir || '.'") && ` +
  'to=".next/standalone/$app" && mkdir -p "$to/.next" && ' +
  '{ [ ! -d .next/static ] || cp -R .next/static "$to/.next/"; } && { [ ! -d public ] || cp -R public "$to/"; }';

async function output(look: Look, installDir: string, startScript: boolean): Promise<BuildOutput> {
  const { tree, appDir, spec } = look;
  const chosen = await chosenOutput(look, installDir);
  if (chosen !== null) return chosen;
  if (await tree.has(at(look, '.next/standalone'), 'folder')) return standalone(look);
  if (spec.app_type !== 'backend' && (await isExported(look))) {
    const dir = await siteFolder(tree, appDir, ['out']);
    if (dir !== null) return { kind: 'static', dir };
  }
  return serverIn(installDir, appDir, startScript ? 'npm start' : './node_modules/.bin/next start');
}

async function standalone(look: Look): Promise<BuildOutput> {
  const dir = at(look, '.next/standalone');
  const folders = await look.tree.walk(dir, 6, (name) => name !== 'node_modules' && name !== '.next');
  const found = folders.find(({ names }) => names.includes('server.js'));
  if (!found) throw new BuildFailure('.next/standalone has no server.js after the build.');
  const inner = found.path === dir ? '' : `cd ${quoted(found.path.slice(dir.length + 1))} && `;
  return { kind: 'server', dir, start: `${inner}HOSTNAME="$HOST" node server.js` };
}

/** By what the build has left, or by what the configuration says. */
async function isExported(look: Look): Promise<boolean> {
  if (await look.tree.has(at(look, '.next/export-detail.json'))) return true;
  for (const name of ['next.config.js', 'next.config.mjs', 'next.config.cjs', 'next.config.ts']) {
    const text = await look.tree.read(at(look, name));
    if (text && /output\s*:\s*['"]export['"]/.test(text)) return true;
  }
  return false;
}
