import { loadavg } from 'node:os';
import { quantile, startInstallation } from '../src/installation.mjs';
import { buildLogLags, runtimeLogLags } from './logs.mjs';
import { staticFolders } from './static.mjs';
import { webhooks } from './webhooks.mjs';
import { startGitHost } from './git-host.mjs';

/**
 * What a user of apps waits for: an uploaded folder until it is served, a push until the build says something, a line of a log
 * until its reader has it.
 * @param {{ size?: number, only?: string }} options 10 uploads and pushes and 100 lines for each step of the size; `only` one of
 *   static, webhook, build-log, runtime-log
 */
export async function benchApps({ size = 3, only } = {}) {
  const [before] = loadavg();
  const host = await startGitHost();
  const nebo = await startInstallation(undefined, undefined, { NEBO_SAFE_NET_ALLOW: host.address });
  const measures = [
    [
      'static',
      'archive of 1 MB, sent until its new page answers 200',
      3_000,
      1,
      () => staticFolders(nebo, 10 * size),
    ],
    [
      'webhook',
      'delivery of a push, sent until the first line of the build’s log',
      2_000,
      0.95,
      () => webhooks(nebo, host, 10 * size),
    ],
    [
      'build-log',
      'line of a build, written until its reader has it',
      250,
      0.95,
      () => buildLogLags(nebo, 100 * size),
    ],
    [
      'runtime-log',
      'line of a replica, written until its reader has it',
      250,
      0.95,
      () => runtimeLogLags(nebo, 100 * size),
    ],
  ];
  const rows = [];
  try {
    for (const [name, what, goal, part, measure] of measures) {
      if (only && only !== name) continue;
      console.error(`  ${name}`);
      const all = await measure();
      const value = quantile(all, part);
      const columns = [0.5, 0.95, 1].map((at) => quantile(all, at).toFixed(0));
      const goalWords = `${part === 1 ? 'most' : 'p95'} ≤ ${goal}`;
      rows.push(
        `| ${what} | ${all.length} | ${columns.join(' | ')} | ${goalWords} | ${value <= goal ? 'met' : 'missed'} |`,
      );
    }
  } finally {
    await nebo.stop();
    nebo.remove();
    await host.stop();
  }
  return [
    `Load ${before.toFixed(1)} to ${loadavg()[0].toFixed(1)}; milliseconds.`,
    '',
    '| what | runs | p50 | p95 | most | goal | verdict |',
    '|---|---|---|---|---|---|---|',
    ...rows,
  ].join('\n');
}
