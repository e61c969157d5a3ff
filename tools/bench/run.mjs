/**
 * `npm run bench -- NAME` (start, gateway, inference, compute, builds, dns, edge, wake, apps; without a name: all). Ratios in one run, CPU per request rather than a
 * time: a neighbour on the machine slows everything alike. Prints a table and writes it to docs/bench.md with --write.
 * `--size=N` for benches that have a quick form (1) and a whole one, `--only=WORD` for some of their measures.
 */
import { appendFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../start/node-binary.mjs';
import { benchApps } from './apps/index.mjs';
import { benchBuilds } from './builds/index.mjs';
import { benchCompute } from './compute/index.mjs';
import { benchDns } from './dns/index.mjs';
import { benchEdge } from './edge/index.mjs';
import { benchInference } from './inference/index.mjs';
import { benchGateway } from './src/gateway.mjs';
import { benchStart } from './src/start.mjs';
import { benchWake } from './wake/index.mjs';

const benches = {
  start: benchStart,
  gateway: benchGateway,
  inference: benchInference,
  compute: benchCompute,
  builds: benchBuilds,
  dns: benchDns,
  edge: benchEdge,
  wake: benchWake,
  apps: benchApps,
};
const words = process.argv.slice(2);
const names = words.filter((word) => !word.startsWith('-'));
const size = words.map((word) => /^--size=([1-9]\d?)$/.exec(word)?.[1]).find(Boolean);
const only = words.map((word) => /^--only=(.+)$/.exec(word)?.[1]).find(Boolean);
const unknown = names.filter((name) => !benches[name]);
if (unknown.length > 0) {
  console.error(`there is no bench "${unknown[0]}"; there are: ${Object.keys(benches).join(', ')}`);
  process.exit(2);
}
for (const name of names.length > 0 ? names : Object.keys(benches)) {
  console.error(`… ${name}`);
  const table = await benches[name]({ ...(size ? { size: Number(size) } : {}), ...(only ? { only } : {}) });
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
    cwd: root,
    encoding: 'utf8',
  }).trim();
  const text = `\n## ${name}, ${new Date().toISOString().slice(0, 10)}, ${commit}\n\n${table}\n`;
  console.log(text);
  if (words.includes('--write')) appendFileSync(join(root, 'docs/bench.md'), text);
}
process.exit(0);
