import { posix } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { BuildFailure, type SourceTree } from './tree.js';

/** What a package.json says, as far as builds care. */
export interface PackageJson {
  scripts: Record<string, string>;
  dependencies: Record<string, string>;
  main: string | null;
  workspaces: boolean;
  packageManager: string | null;
  nodeEngine: string | null;
}

/** What to run to make an app from its source. Paths are relative to the tree. */
export interface BuildPlan {
  stack: 'node' | 'static';
  appDir: string;
  /** Where dependencies are installed: the app's folder, or the root of the workspace that it belongs to. */
  installDir: string;
  install: string | null;
  build: string | null;
  pkg: PackageJson | null;
}

/** What a finished build is packed from. */
export type BuildOutput =
  | { kind: 'static'; dir: string }
  /** `dir` is packed whole; the command starts in it. */
  | { kind: 'server'; dir: string; start: string };

const strings = (value: unknown): Record<string, string> =>
  typeof value === 'object' && value !== null
    ? Object.fromEntries(
        Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
      )
    : {};

/** @throws BuildFailure when the file is no JSON object */
export async function readPackage(tree: SourceTree, dir: string): Promise<PackageJson | null> {
  const path = posix.join(dir, 'package.json');
  const text = await tree.read(path);
  if (text === null) return null;
  let json: Record<string, unknown>;
  try {
    json = JSON.parse(text) as Record<string, unknown>;
    if (typeof json !== 'object' || json === null || Array.isArray(json)) throw new Error('no object');
  } catch {
    throw new BuildFailure(`${path} is not valid JSON.`);
  }
  const engines = strings(json['engines']);
  return {
    scripts: strings(json['scripts']),
    dependencies: {
      ...strings(json['devDependencies']),
      ...strings(json['optionalDependencies']),
      ...strings(json['dependencies']),
    },
    main: typeof json['main'] === 'string' ? json['main'] : null,
    workspaces: json['workspaces'] !== undefined,
    packageManager: typeof json['packageManager'] === 'string' ? json['packageManager'] : null,
    nodeEngine: engines['node'] ?? null,
  };
}

const locks = [
  { file: 'pnpm-lock.yaml', frozen: 'npx --yes pnpm@10 install --frozen-lockfile' },
  { file: 'yarn.lock', frozen: 'npx --yes yarn@1 install --frozen-lockfile' },
  { file: 'package-lock.json', frozen: 'npm ci --no-audit --no-fund' },
  { file: 'npm-shrinkwrap.json', frozen: 'npm ci --no-audit --no-fund' },
] as const;

/** The install command by lock file, then by `packageManager`; null when there is nothing to install. */
async function installCommand(tree: SourceTree, dir: string, pkg: PackageJson): Promise<string | null> {
  if (Object.keys(pkg.dependencies).length === 0 && !pkg.workspaces) return null;
  for (const lock of locks) {
    if (!(await tree.has(posix.join(dir, lock.file)))) continue;
    // A newer yarn has another lock format, which yarn 1 does not read; corepack's pin says which one it is.
    const modern = lock.file === 'yarn.lock' && /^yarn@([2-9]|\d\d)/.exec(pkg.packageManager ?? '');
    return modern ? 'npx --yes @yarnpkg/cli-dist install --immutable' : lock.frozen;
  }
  const manager = pkg.packageManager?.split('@')[0];
  if (manager === 'pnpm') return 'npx --yes pnpm@10 install';
  if (manager === 'yarn') return 'npx --yes yarn@1 install';
  return 'npm install --no-audit --no-fund';
}

/** The nearest folder upwards that is a workspace with this app below it; the app's own folder when there is none. */
async function workspaceRoot(tree: SourceTree, appDir: string): Promise<string> {
  for (let dir = appDir; dir !== '.';) {
    dir = posix.dirname(dir);
    const pkg = await readPackage(tree, dir);
    if (pkg?.workspaces || (await tree.has(posix.join(dir, 'pnpm-workspace.yaml')))) return dir;
  }
  return appDir;
}

const mainFiles = ['server.js', 'server.mjs', 'index.js', 'index.mjs', 'app.js', 'main.js'];

/** The file that starts the server, from `main` or by its usual name. */
async function mainFile(tree: SourceTree, appDir: string, pkg: PackageJson | null): Promise<string | null> {
  for (const name of [...(pkg?.main ? [pkg.main] : []), ...mainFiles])
    if (!name.startsWith('/') && (await tree.has(posix.join(appDir, name)))) return posix.normalize(name);
  return null;
}

/**
 * Says how to build a source. Explicit commands win; a package.json with a build or start script or a main file is Node;
 * an index.html, a public folder or a named output is a static site (facts/platform.md section 4).
 * @throws BuildFailure that names what was looked for
 */
export async function detect(tree: SourceTree, spec: BuildSpec): Promise<BuildPlan> {
  const appDir = spec.root_directory ? await tree.folder('root_directory', spec.root_directory) : '.';
  const at = (name: string) => posix.join(appDir, name);
  const pkg = spec.framework === 'static' ? null : await readPackage(tree, appDir);
  const main = await mainFile(tree, appDir, pkg);
  const start = spec.start_command ?? pkg?.scripts['start'] ?? null;
  const build = spec.build_command ?? (pkg?.scripts['build'] ? 'npm run build' : null);
  const node =
    start !== null || build !== null || spec.install_command !== null || (pkg !== null && main !== null);
  if (pkg && node) {
    const installDir = await workspaceRoot(tree, appDir);
    const owner = installDir === appDir ? pkg : await readPackage(tree, installDir);
    const found = await installCommand(tree, installDir, owner ?? pkg);
    return { stack: 'node', appDir, installDir, install: spec.install_command ?? found, build, pkg };
  }
  const plain = { appDir, installDir: appDir, install: spec.install_command, build, pkg };
  if (node || (spec.app_type === 'backend' && main !== null && /\.m?js$/.test(main)))
    return { stack: start !== null || main !== null ? 'node' : 'static', ...plain };
  if (
    spec.output_directory !== null ||
    (await tree.has(at('index.html'))) ||
    (await tree.has(at('public'), 'folder'))
  )
    return { stack: 'static', ...plain };
  if (main !== null && main !== 'index.js') return { stack: 'node', ...plain };
  const where = appDir === '.' ? 'the source' : `root_directory "${appDir}"`;
  throw new BuildFailure(
    `Nothing to build or serve was found in ${where}: looked for package.json with a build or start script or a main ` +
      `file, ${mainFiles.join(', ')}, index.html and a public folder. Set build_command, start_command or output_directory.`,
  );
}

const outputs = ['dist', 'build', 'out', 'public'];
/** Packages whose `start` script is a development server and whose build is a static site. */
const staticTools = [
  'vite',
  'react-scripts',
  '@vue/cli-service',
  'parcel',
  '@angular/cli',
  'astro',
  'gatsby',
  '@11ty/eleventy',
];
const serverTools = [
  'next',
  'nuxt',
  'express',
  'fastify',
  'koa',
  'hono',
  '@hapi/hapi',
  '@nestjs/core',
  '@remix-run/serve',
  '@react-router/serve',
  '@sveltejs/adapter-node',
  '@astrojs/node',
  'h3',
  'ws',
];

async function staticOutput(tree: SourceTree, appDir: string): Promise<string | null> {
  for (const name of outputs) {
    const dir = posix.join(appDir, name);
    if (!(await tree.filled(dir))) continue;
    // Angular puts the site one or two levels deeper.
    for (const inner of ['browser', ''])
      if (await tree.has(posix.join(dir, inner, 'index.html'))) return posix.join(dir, inner);
    if (name === 'public') return dir;
  }
  return (await tree.has(posix.join(appDir, 'index.html'))) ? appDir : null;
}

/** Whether next.config asks for a static export. */
async function exportsStatic(tree: SourceTree, appDir: string): Promise<boolean> {
  for (const name of ['next.config.js', 'next.config.mjs', 'next.config.ts']) {
    const text = await tree.read(posix.join(appDir, name));
    if (text && /output\s*:\s*['"]export['"]/.test(text)) return true;
  }
  return false;
}

/**
 * Says what to pack, after the build ran.
 * @throws BuildFailure when there is nothing to serve or start
 */
export async function output(tree: SourceTree, spec: BuildSpec, plan: BuildPlan): Promise<BuildOutput> {
  const { appDir, installDir, pkg } = plan;
  const server = (start: string): BuildOutput => {
    if (installDir === appDir) return { kind: 'server', dir: appDir, start };
    // node_modules lie at the workspace's root, so all of it goes along.
    const inner = posix.relative(installDir === '.' ? '' : installDir, appDir);
    return { kind: 'server', dir: installDir, start: `cd '${inner.replaceAll("'", "'\\''")}' && ${start}` };
  };
  if (spec.start_command !== null) return server(spec.start_command);
  if (spec.output_directory !== null && spec.app_type !== 'backend') {
    const value = posix.join(appDir, spec.output_directory);
    const dir = await tree.folder(
      'output_directory',
      spec.output_directory.startsWith('/') ? spec.output_directory : value,
    );
    if (!(await tree.filled(dir)))
      throw new BuildFailure(`output_directory "${spec.output_directory}" is empty after the build.`);
    return { kind: 'static', dir };
  }
  const has = (names: readonly string[]) => names.some((name) => pkg?.dependencies[name] !== undefined);
  const nextExport = has(['next']) && (await exportsStatic(tree, appDir));
  const site = spec.app_type !== 'backend' && (nextExport || (has(staticTools) && !has(serverTools)));
  if (!site) {
    if (pkg?.scripts['start']) return server('npm start');
    const main = await mainFile(tree, appDir, pkg);
    const dir = spec.app_type === 'backend' ? null : await staticOutput(tree, appDir);
    // "main" of a package that is only built into a site is no server: a site that is there wins, unless main is named.
    if (main !== null && plan.stack === 'node' && (pkg?.main || dir === null))
      return server(`node '${main.replaceAll("'", "'\\''")}'`);
    if (spec.app_type === 'backend')
      throw new BuildFailure(
        `This is a backend app, but nothing to start was found: looked for start_command, a start script, "main" of ` +
          `package.json and ${mainFiles.join(', ')}.`,
      );
  }
  const dir = await staticOutput(tree, appDir);
  if (dir !== null) return { kind: 'static', dir };
  throw new BuildFailure(
    `The build left nothing to serve: looked for ${outputs.join(', ')} with an index.html. Set output_directory or start_command.`,
  );
}
