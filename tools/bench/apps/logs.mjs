import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deployFolder, makeApp, packed, upload } from '../src/deploy.mjs';
import { lines } from './events.mjs';

/** A program that writes the time `count` times, about eight times a second. */
const clock = (count) =>
  `let n = 0; const t = setInterval(() => { console.log('t=' + Date.now()); if (++n >= ${count}) clearInterval(t); }, 127);`;

/** @returns {Promise<number[]>} milliseconds from the writing of each line until a reader of the build's log has it */
export function buildLogLags(nebo, count) {
  return inFolder(async (folder) => {
    writeFileSync(join(folder, 'index.html'), 'made');
    writeFileSync(join(folder, 'clock.js'), clock(count));
    const app = await makeApp(nebo, { build_command: 'node clock.js', output_directory: '.' });
    const build = await upload(nebo, app.id, await packed(folder));
    return lags(nebo, `/apps/${app.id}/builds/${build}/logs`, count);
  });
}

/** The same of a replica's log. */
export function runtimeLogLags(nebo, count) {
  return inFolder(async (folder) => {
    const server = `require('node:http').createServer((_, r) => r.end()).listen(process.env.PORT);`;
    writeFileSync(join(folder, 'server.js'), `${server}${clock(1e9)}`);
    const app = await deployFolder(nebo, folder, { start_command: 'node server.js', replica_count: 1 });
    return lags(nebo, `/apps/${app.id}/logs?tail=0`, count);
  });
}

async function lags(nebo, path, count) {
  const found = [];
  for await (const line of lines(nebo, path)) {
    const [, written] = /^t=(\d+)$/.exec(line) ?? [];
    if (written !== undefined) found.push(Math.max(0, Date.now() - Number(written)));
    if (found.length >= count) break;
  }
  if (found.length < count) throw new Error(`${path} ended after ${found.length} lines of ${count}`);
  return found;
}

async function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-bench-log-'));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
