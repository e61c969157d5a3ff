/**
 * `npm test`: installs what is missing, then formatting, lint, types and all tests of all projects, everything real.
 * `npm test -- PROJECT…` runs some projects only. The last line counts the tests.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensureBuilt, ensureInstalled } from '../start/install.mjs';
import { nodeBinary, root } from '../start/node-binary.mjs';

const begun = Date.now();
const projects = process.argv.slice(2).filter((word) => !word.startsWith('-'));

/** Logs that nobody watches have no colours. */
const plain = process.stdout.isTTY ? {} : { NO_COLOR: '1', FORCE_COLOR: '0' };

function run(command, args) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: 'inherit',
      env: {
        ...process.env,
        ...plain,
        NX_DAEMON: 'false',
        PATH: `${join(root, 'node_modules/.bin')}:${process.env.PATH}`,
      },
    });
    for (const signal of ['SIGTERM', 'SIGHUP']) process.once(signal, () => child.kill(signal));
    child.on('exit', (code) => resolve(code ?? 1));
  });
}

try {
  await ensureInstalled();
  await run(nodeBinary(), ['--disable-warning=ExperimentalWarning', 'tools/test/system-packages.mjs']);
  await ensureBuilt();
} catch (error) {
  console.error(`npm test: ${error.message}`);
  process.exit(1);
}
const nx = join(root, 'node_modules/.bin/nx');
const only = projects.length > 0 ? [`--projects=${projects.join(',')}`] : [];
let failed = false;
const step = async (title, command, args) => {
  console.error(`\n=== ${title} (${Math.round((Date.now() - begun) / 1000)} s)`);
  if ((await run(command, args)) !== 0) failed = true;
};
if (projects.length === 0)
  await step('formatting', join(root, 'node_modules/.bin/prettier'), ['--check', '--log-level=warn', '.']);
await step('lint and types', nx, [
  'run-many',
  '-t',
  'lint',
  'typecheck',
  '--parallel=2',
  '--outputStyle=static',
  ...only,
]);
await step('tests', nx, [
  'run-many',
  '-t',
  'test',
  '--parallel=2',
  '--outputStyle=static',
  '--nxBail=false',
  ...only,
]);

const sum = { passed: 0, failed: 0, skipped: 0 };
for (const folder of ['apps', 'libs', '.']) {
  for (const name of folder === '.' ? ['e2e', 'deploy'] : readdirSync(join(root, folder))) {
    const file = join(root, folder, name, 'test-results.json');
    if (!existsSync(file) || (projects.length > 0 && !projects.includes(name))) continue;
    const counts = JSON.parse(readFileSync(file, 'utf8'));
    for (const key of Object.keys(sum)) sum[key] += counts[key];
    for (const test of counts.skippedTests) console.error(`skipped: ${name}: ${test}`);
  }
}
console.error(`\n${failed ? 'FAILED' : 'ok'} in ${Math.round((Date.now() - begun) / 1000)} s`);
console.log(`${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`);
process.exit(failed || sum.failed > 0 ? 1 : 0);
