/**
 * Brings an installation of packages and builds up to date: nothing is done that is done already. Used by `npm start` and
 * `npm test`, so that both work right after `git clone`. Runs on Node 20.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './node-binary.mjs';

const [major] = process.versions.node.split('.').map(Number);
if (major < 20) {
  console.error(`Nebo needs Node 20 or newer; this is ${process.version}.`);
  process.exit(1);
}

const say = (text) => process.stderr.write(`${text}\n`);
const stampFile = join(root, 'node_modules/.nebo-installed');
const buildStamp = join(root, 'node_modules/.nebo-built');

/** Runs a command and shows its output only when it fails. */
function run(title, command, args, { timeoutMs = 900_000 } = {}) {
  const started = Date.now();
  say(`… ${title}`);
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: root,
      env: {
        ...process.env,
        NX_DAEMON: 'false',
        PATH: `${join(root, 'node_modules/.bin')}:${process.env.PATH}`,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const keep = (chunk) => (output = (output + chunk).slice(-20_000));
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const pulse = setInterval(
      () => say(`  still working (${Math.round((Date.now() - started) / 1000)} s)`),
      20_000,
    );
    const limit = setTimeout(() => child.kill(), timeoutMs);
    child.on('error', reject);
    child.on('exit', (code) => {
      clearInterval(pulse);
      clearTimeout(limit);
      if (code === 0) {
        say(`  done in ${((Date.now() - started) / 1000).toFixed(1)} s`);
        resolve();
      } else {
        say(output);
        reject(new Error(`${title} failed (exit ${code}): ${command} ${args.join(' ')}`));
      }
    });
  });
}

const hashOf = (...parts) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
};

/** `npm ci` when the lock file is another than that of the last install. */
export async function ensureInstalled() {
  const lock = hashOf(
    readFileSync(join(root, 'package-lock.json')),
    readFileSync(join(root, 'package.json')),
  );
  const stamp = existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : '';
  if (stamp === lock && existsSync(join(root, 'node_modules/node/bin/node'))) return;
  await run('installing packages (first time: one to four minutes)', 'npm', [
    'ci',
    '--no-audit',
    '--no-fund',
    '--loglevel=error',
  ]);
  if (!existsSync(join(root, 'node_modules/node/bin/node'))) {
    throw new Error(
      'npm did not run the install script of the package "node"; run "npm install-scripts approve node" and "npm ci"',
    );
  }
  writeFileSync(stampFile, lock);
}

/** Newest change and count of the sources, cheap enough for every start. */
function sourceState() {
  let newest = 0;
  let files = 0;
  const walk = (folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (['node_modules', 'dist', 'generated', 'test', '.nx'].includes(entry.name)) continue;
      const path = join(folder, entry.name);
      if (entry.isDirectory()) walk(path);
      else if (/\.(ts|prisma|json)$/.test(entry.name) && !entry.name.endsWith('.spec.ts')) {
        files += 1;
        newest = Math.max(newest, statSync(path).mtimeMs);
      }
    }
  };
  walk(join(root, 'apps'));
  walk(join(root, 'libs'));
  return `${files}:${newest}`;
}

/** Builds what changed since the last build. */
export async function ensureBuilt() {
  const state = sourceState();
  const built = existsSync(buildStamp) ? readFileSync(buildStamp, 'utf8') : '';
  if (built === state && existsSync(join(root, 'apps/all-in-one/dist/main.js'))) return;
  mkdirSync(join(root, '.nx'), { recursive: true });
  await run('building', join(root, 'node_modules/.bin/nx'), [
    'run-many',
    '-t',
    'build',
    '--outputStyle=static',
  ]);
  // Generated clients appear among the sources during the build.
  writeFileSync(buildStamp, sourceState());
}
