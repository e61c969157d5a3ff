/** `npm start`: installs and builds what is missing, then starts everything in one process. */
import { spawn } from 'node:child_process';
import { ensureBuilt, ensureInstalled } from './install.mjs';
import { nodeBinary, root } from './node-binary.mjs';

try {
  await ensureInstalled();
  await ensureBuilt();
} catch (error) {
  console.error(`npm start: ${error.message}`);
  process.exit(1);
}
const child = spawn(
  nodeBinary(),
  ['--enable-source-maps', 'apps/all-in-one/dist/main.js', ...process.argv.slice(2)],
  {
    cwd: root,
    stdio: 'inherit',
  },
);
// Ctrl-C reaches the whole group by itself; other signals are handed on. The child says goodbye, then this ends with it.
process.on('SIGINT', () => undefined);
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => process.exit(code ?? (signal ? 1 : 0)));
