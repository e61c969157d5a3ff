/**
 * Lays out what the image holds: `node tools/deploy/stage.mjs FOLDER [--install]`. Builds, migrations, contracts and the
 * price list, with the package.json of every workspace, so that npm accepts the lock file. `--install` adds the packages
 * of production. The Dockerfile and the test of the image both call this, so what is tested is what is shipped.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from '../start/node-binary.mjs';

/** Nothing of these runs in the cluster: the command line is its users', the test kit the tests'. */
const notShipped = ['apps/cli', 'libs/test-kit'];

/** Folders of a workspace that its built code reads. */
const parts = ['dist', 'prisma/migrations', 'migrations', 'openapi'];

/**
 * npm's arguments for the packages of production. Peers are what tools want (Prisma's command line, TypeScript), the
 * optional ones are PostgreSQL's binaries for `npm start`; no install script may run.
 */
const install = [
  'ci',
  '--omit=dev',
  '--omit=peer',
  '--omit=optional',
  '--ignore-scripts',
  '--prefer-offline',
  '--loglevel=error',
];

/** Folders of all workspaces, by the lock file. */
function workspaces() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'));
  return Object.values(packages)
    .filter((entry) => entry.link)
    .map((entry) => entry.resolved)
    .sort();
}

/** Copies a path of the repository to the same place below `target`. */
function take(target, path) {
  const from = join(root, path);
  if (!existsSync(from)) throw new Error(`${path} is missing: build first (nx run-many -t build)`);
  mkdirSync(dirname(join(target, path)), { recursive: true });
  cpSync(from, join(target, path), { recursive: true });
}

/** @throws Error naming what is missing, or when the folder is not empty */
function stage(target) {
  mkdirSync(target, { recursive: true });
  if (readdirSync(target).length > 0) throw new Error(`${target} is not empty`);
  for (const file of ['package.json', 'package-lock.json', '.npmrc', 'deploy/config/prices.yaml'])
    take(target, file);
  for (const folder of workspaces()) {
    take(target, `${folder}/package.json`);
    if (!/^(apps|libs)\//.test(folder) || notShipped.includes(folder)) continue;
    take(target, `${folder}/dist`);
    for (const part of parts) if (existsSync(join(root, folder, part))) take(target, `${folder}/${part}`);
  }
}

try {
  const { values, positionals } = parseArgs({
    options: { install: { type: 'boolean' } },
    allowPositionals: true,
  });
  if (positionals.length !== 1) throw new Error('usage: node tools/deploy/stage.mjs FOLDER [--install]');
  const target = resolve(positionals[0]);
  stage(target);
  if (values.install) {
    const done = spawnSync('npm', install, { cwd: target, stdio: 'inherit' });
    if (done.status !== 0)
      throw new Error(`npm ${install.join(' ')} ended with ${done.status ?? done.error?.message}`);
  }
} catch (error) {
  console.error(`stage: ${error.message}`);
  process.exitCode = 1;
}
