import { createHash } from 'node:crypto';
import { posix } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { quoted, type Look, type PlanCaches, type ToolCache } from '../plan.js';
import { type SourceTree } from '../tree.js';
import { type PackageJson, readPackage } from './package-json.js';

/** A package manager as a source asks for it. */
export interface PackageManager {
  name: 'npm' | 'pnpm' | 'yarn' | 'bun';
  /** Its lock file, relative to the tree; null: versions are not fixed. */
  lock: string | null;
  install: string;
  /** Runs a script of package.json. */
  run(script: string): string;
}

/** Versions of managers that npm fetches, where `packageManager` says nothing. */
const usual = { pnpm: 'pnpm@10', yarn: 'yarn@1', modernYarn: '@yarnpkg/cli-dist', bun: 'bun@1' } as const;

const lockFiles = [
  ['pnpm-lock.yaml', 'pnpm'],
  ['bun.lock', 'bun'],
  ['bun.lockb', 'bun'],
  ['yarn.lock', 'yarn'],
  ['package-lock.json', 'npm'],
  ['npm-shrinkwrap.json', 'npm'],
] as const;

const npmCache: ToolCache = { name: 'npm', variables: ['npm_config_cache'], wanted: 'install' };
/** Managers other than npm lie in npm's cache themselves, and their `run` needs them. */
const npxCache: ToolCache = { ...npmCache, wanted: 'always' };
const caches: Record<PackageManager['name'], readonly ToolCache[]> = {
  npm: [npmCache],
  pnpm: [npxCache, { name: 'pnpm', variables: ['npm_config_store_dir'], wanted: 'install' }],
  yarn: [
    npxCache,
    { name: 'yarn', variables: ['YARN_CACHE_FOLDER', 'YARN_GLOBAL_FOLDER'], wanted: 'install' },
  ],
  bun: [npxCache, { name: 'bun', variables: ['BUN_INSTALL_CACHE_DIR'], wanted: 'install' }],
};

/** The manager by lock file, then by `packageManager`, else npm. */
export async function packageManager(
  tree: SourceTree,
  dir: string,
  pkg: PackageJson,
): Promise<PackageManager> {
  // "pnpm@9.1.0+sha512.…": the hash is for another tool.
  const pin = /^(npm|pnpm|yarn|bun)@(\d+)[\w.-]*/.exec(pkg.packageManager ?? '');
  for (const [file, name] of lockFiles) {
    const lock = posix.join(dir, file);
    if (!(await tree.has(lock))) continue;
    // A newer yarn has another lock format, which yarn 1 does not read.
    const modern =
      name === 'yarn' &&
      (pin?.[1] === 'yarn' ? Number(pin[2]) > 1 : /^__metadata:/m.test((await tree.read(lock)) ?? ''));
    return manager(name, lock, pin?.[1] === name ? pin[0] : null, modern);
  }
  const name = (pin?.[1] ?? 'npm') as PackageManager['name'];
  return manager(name, null, pin?.[0] ?? null, name === 'yarn' && Number(pin?.[2]) > 1);
}

function manager(
  name: PackageManager['name'],
  lock: string | null,
  pin: string | null,
  modern: boolean,
): PackageManager {
  if (name === 'npm') {
    const install = lock === null ? 'npm install --no-audit --no-fund' : 'npm ci --no-audit --no-fund';
    return { name, lock, install, run: (script) => `npm run ${script}` };
  }
  const pinned = modern && pin !== null ? pin.replace(/^yarn@/, `${usual.modernYarn}@`) : pin;
  const npx = `npx --yes ${pinned ?? (modern ? usual.modernYarn : usual[name])}`;
  const frozen = lock === null ? '' : modern ? ' --immutable' : ' --frozen-lockfile';
  // A script may call its manager: npx puts it into PATH.
  return { name, lock, install: `${npx} install${frozen}`, run: (script) => `${npx} run ${script}` };
}

/** The package of an app with the workspace around it. */
export interface Project {
  pkg: PackageJson;
  /** Of the folder where dependencies are installed. */
  owner: PackageJson;
  installDir: string;
  manager: PackageManager;
  /** Null when there is nothing to install. */
  install: string | null;
}

/** Reads the project of an app's folder. */
export async function readProject(look: Look, pkg: PackageJson): Promise<Project> {
  const { tree, appDir } = look;
  const installDir = await workspaceRoot(tree, appDir);
  const owner = installDir === appDir ? pkg : ((await readPackage(tree, installDir)) ?? pkg);
  const manager = await packageManager(tree, installDir, owner);
  const workspace = owner.workspaces || (await tree.has(posix.join(installDir, 'pnpm-workspace.yaml')));
  const empty = Object.keys(owner.dependencies).length === 0 && !workspace;
  return { pkg, owner, installDir, manager, install: empty ? null : manager.install };
}

/** The nearest folder upwards that is a workspace with this app below it; the app's own folder when there is none. */
async function workspaceRoot(tree: SourceTree, appDir: string): Promise<string> {
  for (let dir = appDir; dir !== '.';) {
    dir = posix.dirname(dir);
    const pkg = await readPackage(tree, dir);
    const marks = ['pnpm-workspace.yaml', 'nx.json'].map((name) => tree.has(posix.join(dir, name)));
    if (pkg?.workspaces || (await Promise.all(marks)).includes(true)) return dir;
  }
  return appDir;
}

/**
 * What builds a package: in a workspace also the packages that it is made of, where a tool of the workspace knows them.
 * @param script of package.json
 */
export async function buildCommand(look: Look, project: Project, script: string): Promise<string> {
  const { pkg, owner, installDir, manager } = project;
  const { tree, appDir } = look;
  const inner = posix.relative(installDir === '.' ? '' : installDir, appDir);
  if (inner !== '' && pkg.name !== null) {
    if (owner.dependencies['turbo'] && (await tree.has(posix.join(installDir, 'turbo.json'))))
      return inRoot(inner, `npx turbo run ${script} ${quoted(`--filter=${pkg.name}`)}`);
    const local = Object.values(pkg.dependencies).some((range) => range.startsWith('workspace:'));
    if (manager.name === 'pnpm' && local)
      return inRoot(inner, manager.run(script).replace(' run ', ` --filter ${quoted(`./${inner}...`)} run `));
  }
  return manager.run(script);
}

/** A command in the workspace's root, from the app's folder. */
export const inRoot = (inner: string, command: string): string =>
  `cd ${quoted(
    inner
      .split('/')
      .map(() => '..')
      .join('/'),
  )} && ${command}`;

const lifecycle = ['preinstall', 'install', 'postinstall', 'prepare', 'prepublish'];

/**
 * What later builds of a project go on with. What is installed is taken whole only where it depends on nothing but what
 * the key holds: versions are locked, no script of the project's own runs, nothing comes from a folder.
 */
export async function projectCaches(look: Look, project: Project): Promise<PlanCaches> {
  const { manager, installDir, install } = project;
  if (install === null) return { tools: [], tree: [], installed: null };
  const tools = caches[manager.name];
  const key = await installedKey(look.tree, look.spec, project);
  return {
    tools,
    tree: [],
    installed: key === null ? null : { key, folders: () => nodeModules(look.tree, installDir) },
  };
}

/** Folders of node_modules in which tools keep what their next run goes on with: bundlers, TypeScript, Vite, Astro. */
const keptInModules = ['.cache', '.tmp', '.vite', '.astro'] as const;

/**
 * The caches of a project whose tools keep their own: beside what is installed also what they have put there. It is theirs to know
 * what of it still holds.
 */
export async function toolCaches(look: Look, project: Project): Promise<PlanCaches> {
  const caches = await projectCaches(look, project);
  const { appDir } = look;
  const places = [...new Set([project.installDir, appDir])];
  const modules = places.flatMap((dir, index) =>
    keptInModules.map((name) => ({
      name: `${index === 0 ? '' : 'app-'}modules-${name.slice(1)}`,
      path: posix.join(dir, 'node_modules', name),
      inInstalled: true as const,
    })),
  );
  const own = [
    { name: 'parcel', path: posix.join(appDir, '.parcel-cache') },
    { name: 'angular', path: posix.join(appDir, '.angular/cache') },
  ];
  return { ...caches, tree: [...caches.tree, ...(caches.installed === null ? [] : modules), ...own] };
}

async function installedKey(
  tree: SourceTree,
  spec: BuildSpec,
  { manager, installDir, install }: Project,
): Promise<string | null> {
  const lock = manager.lock === null ? null : await tree.read(manager.lock, 16 * 1024 * 1024);
  if (lock === null) return null;
  const hash = createHash('sha256').update(`${process.version} ${process.arch} ${install}\n${lock}`);
  for (const dir of await packageFolders(tree, installDir)) {
    const pkg = await readPackage(tree, dir);
    if (pkg === null) continue;
    if (lifecycle.some((name) => pkg.scripts[name] !== undefined)) return null;
    const outside = Object.values(pkg.dependencies).some((range) => /^(file|link|portal):/.test(range));
    if (outside) return null;
    hash.update(`\n${dir} ${JSON.stringify(pkg.dependencies)}`);
  }
  for (const name of ['.npmrc', '.yarnrc', '.yarnrc.yml', 'pnpm-workspace.yaml', 'bunfig.toml'])
    hash.update(`\n${name} ${(await tree.read(posix.join(installDir, name))) ?? ''}`);
  // Scripts of packages see the variables.
  for (const { name, value } of spec.env) hash.update(`\n${name}=${value}`);
  return hash.digest('hex');
}

/** Folders with a package.json, other packages' installed ones left out. */
async function packageFolders(tree: SourceTree, dir: string): Promise<string[]> {
  return (await tree.walk(dir, 6, (name) => name !== 'node_modules' && !name.startsWith('.')))
    .filter(({ names }) => names.includes('package.json'))
    .map(({ path }) => path);
}

/** Every node_modules of a workspace: each package may have its own. */
async function nodeModules(tree: SourceTree, dir: string): Promise<string[]> {
  return (await tree.walk(dir, 6, (name) => name !== 'node_modules' && !name.startsWith('.')))
    .filter(({ names }) => names.includes('node_modules'))
    .map(({ path }) => posix.join(path, 'node_modules'));
}
