/**
 * Runs a script with a Node that Nebo supports, whatever `node` is on PATH:
 *   node tools/start/with-node.mjs [node flags] SCRIPT [arguments]
 * Signals go to the child, its exit code comes back.
 */
import { spawn } from 'node:child_process';
import { nodeBinary } from './node-binary.mjs';

let binary;
try {
  binary = nodeBinary();
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
const child = spawn(binary, process.argv.slice(2), { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  // Ctrl-C reaches the whole process group by itself; a second copy would count as "stop at once".
  process.on(signal, () => signal !== 'SIGINT' && child.kill(signal));
}
child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 143)));
