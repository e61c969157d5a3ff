import { chmodSync, cpSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deployFolder } from '../src/deploy.mjs';
import { quantile, startInstallation } from '../src/installation.mjs';
import { coldAnswer } from './ask.mjs';
import { byHand } from './by-hand.mjs';

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/**
 * Cold starts: from the request to the first byte of its answer, less what the app itself takes from its process's start until
 * it listens. In turn with the same app started by hand in the same enclosure.
 * @param {{ size?: number }} options rounds are 20 times the size; 10 for 200
 */
export async function benchWake({ size = 10 } = {}) {
  const [before] = loadavg();
  const folder = mkdtempSync(join(tmpdir(), 'nebo-wake-app-'));
  // The sandbox's user reads it.
  chmodSync(folder, 0o755);
  cpSync(fileURLToPath(new URL('app.mjs', import.meta.url)), join(folder, 'server.mjs'));
  const nebo = await startInstallation(undefined, undefined, { NEBO_IDLE_TIMEOUT: '1' });
  const hand = await byHand(folder);
  const ours = [];
  const theirs = [];
  try {
    const apps = [];
    for (let count = 0; count < 3; count += 1)
      apps.push({ ...(await deployFolder(nebo, folder, { start_command: 'node server.mjs' })), last: null });
    for (let round = 0, tries = 0; ours.length < 20 * size; round += 1, tries += 1) {
      if (tries > 60 * size + 20) throw new Error('the apps do not go to sleep');
      const app = apps[round % apps.length];
      // By its turn it has slept for a while.
      await pause(Math.max(0, (app.usedAt ?? 0) + 1_700 - performance.now()));
      const answer = await coldAnswer(app.target);
      app.usedAt = performance.now();
      if (answer.status !== 200) throw new Error(`a cold start answered ${answer.status}`);
      const { start, began, boot } = answer.marks;
      // Awake still, or for its first proof.
      if (start === app.last || began < answer.sentAt) continue;
      app.last = start;
      const total = answer.firstAt - answer.sentAt;
      const until = began - answer.sentAt;
      ours.push({ total, boot, own: total - boot, until, after: total - boot - until });
      const { ms, marks } = await hand.start();
      theirs.push({ total: ms, boot: marks.boot, own: ms - marks.boot });
    }
  } finally {
    await nebo.stop();
    nebo.remove();
    await hand.close();
    rmSync(folder, { recursive: true });
  }
  const of = (list, field, part) =>
    quantile(
      list.map((one) => one[field]),
      part,
    );
  const row = (name, list, field, goals) =>
    `| ${name} | ${[0.5, 0.9, 0.99].map((part) => of(list, field, part).toFixed(0)).join(' | ')} | ${goals} |`;
  const verdict = of(ours, 'own', 0.5) <= 100 && of(ours, 'own', 0.99) <= 500 ? 'met' : 'missed';
  const ratio = of(ours, 'own', 0.5) / of(theirs, 'own', 0.5);
  return [
    `${ours.length} cold starts of a small Node server, load ${before.toFixed(1)} to ${loadavg()[0].toFixed(1)}; milliseconds.`,
    '',
    '| what | p50 | p90 | p99 | goal |',
    '|---|---|---|---|---|',
    row('request to first byte', ours, 'total', ''),
    row('– the app’s own boot, from its process’s start until it listens', ours, 'boot', ''),
    row('– the platform’s own part', ours, 'own', `p50 ≤ 100, p99 ≤ 500: ${verdict}`),
    row('– – until the app’s process has begun', ours, 'until', ''),
    row('– – from listening to the first byte', ours, 'after', ''),
    row('by hand in the same enclosure: first process to first byte', theirs, 'total', ''),
    row('– without the app’s own boot', theirs, 'own', `ours is ${ratio.toFixed(2)} times that at p50`),
  ].join('\n');
}
