/**
 * `npm run bench -- edge`: the edge against Caddy and nginx where they are installed. One worker each on one core; generator and
 * app on the other; rounds of all in turn. Requests per second per core are requests by seconds of CPU, which neighbours on the
 * machine change least.
 */
import { execFile } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { median } from '../src/installation.mjs';
import { app, cores, files, startLanes, treeSeconds } from './lanes.mjs';
import { h2load, pinned, wrk } from './peers.mjs';

const run = promisify(execFile);
const connections = 32;
const goals = { Caddy: 1, nginx: 1 / 3 };

/**
 * @param {{ size?: number, only?: string }} options `size`: rounds; 1 is the quick form. `only`: measures whose name holds the word
 */
export async function benchEdge({ size = 5, only = '' } = {}) {
  const [before] = loadavg();
  const folder = mkdtempSync(join(tmpdir(), 'nebo-bench-edge-'));
  // Workers of nginx are nobody, and read the files.
  chmodSync(folder, 0o755);
  let started;
  try {
    started = await startLanes(folder);
    const { lanes, skipped } = started;
    const notes = skipped.map((what) => `- Left out: ${what}.`);
    if (!wrk) throw new Error('wrk is not installed (Debian: wrk)');
    const tables = [];
    const throughput = [
      ['a proxied app, 1 KiB, HTTP/1.1', (lane) => plainly(lane, app, '/')],
      ['a static file of 1 KiB', (lane) => plainly(lane, files, '/small.bin')],
      ['a static file of 100 KiB', (lane) => plainly(lane, files, '/large.bin')],
      ['a proxied app over TLS, HTTP/1.1', (lane) => secured(lane, ['--h1'], app, '/')],
      ['a proxied app over TLS, HTTP/2', (lane) => secured(lane, ['-m8'], app, '/')],
    ];
    for (const [name, ask] of throughput) {
      if (!name.includes(only)) continue;
      if (name.includes('TLS') && !h2load) {
        notes.push(`- Left out: ${name}: h2load is not installed (Debian: nghttp2-client).`);
        continue;
      }
      tables.push(...(await requestTable(name, lanes, ask, size)), '');
    }
    if ('added time'.includes(only)) tables.push(...(await addedTable(lanes, size)), '');
    return [
      `Size ${size}; load of the machine before and after: ${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}. Medians of rounds.`,
      ...notes,
      '',
      ...tables,
    ].join('\n');
  } finally {
    await started?.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @returns requests that were answered with 2xx, and by whose second */
async function plainly(lane, host, path) {
  if (lane.isDirect && host !== app) return null;
  const words = ['-t1', `-c${connections}`, '-d2s', '-H', `Host: ${host}`];
  const { stdout } = await run(
    ...pinned(cores.around, wrk, [...words, `http://127.0.0.1:${lane.port}${path}`]),
  );
  // A time-out says that neighbours had the processor; what was answered is counted all the same.
  if (/Non-2xx|(connect|read|write) [1-9]/.test(stdout)) throw new Error(`${lane.name}: ${stdout}`);
  const answered = Number(/(\d+) requests in/.exec(stdout)[1]);
  return { answered, perSecond: Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)[1]) };
}

async function secured(lane, more, host, path) {
  if (lane.isDirect) return null;
  const words = ['-t1', `-c${connections}`, '-D2', '--warm-up-time=0', ...more];
  const { stdout } = await run(
    ...pinned(cores.around, h2load, [
      ...words,
      `--connect-to=127.0.0.1:${lane.tlsPort}`,
      `https://${host}:${lane.tlsPort}${path}`,
    ]),
  );
  const answered = Number(/status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx/.exec(stdout)?.[1] ?? 0);
  if (answered === 0) throw new Error(`${lane.name}: ${stdout}`);
  return { answered, perSecond: answered / 2 };
}

async function requestTable(name, lanes, ask, rounds) {
  const begun = performance.now();
  const found = new Map(lanes.map((lane) => [lane, { perCore: [], perSecond: [], micro: [] }]));
  for (let round = -1; round < rounds; round += 1) {
    for (const lane of lanes) {
      const used = treeSeconds(lane.pid);
      const got = await ask(lane);
      // The first round warms what is compiled and cached.
      if (!got || round < 0) continue;
      const seconds = treeSeconds(lane.pid) - used;
      const one = found.get(lane);
      one.perCore.push(got.answered / seconds);
      one.perSecond.push(got.perSecond);
      one.micro.push((seconds / got.answered) * 1e6);
    }
  }
  console.error(`  ${name}: ${((performance.now() - begun) / 1_000).toFixed(0)} s`);
  const ours = found.get(lanes.find((lane) => lane.name === 'edge'));
  const rows = lanes
    .filter((lane) => found.get(lane).perCore.length > 0)
    .map((lane) => {
      const one = found.get(lane);
      const times = median(ours.perCore.map((value, index) => value / one.perCore[index]));
      const goal = name.startsWith('a proxied app, 1') ? goals[lane.name] : undefined;
      const verdict = goal === undefined ? '' : times >= goal ? 'met' : 'missed';
      return `| ${lane.name} | ${Math.round(median(one.perCore))} | ${median(one.micro).toFixed(1)} | ${Math.round(median(one.perSecond))} | ${lane.isDirect ? '' : times.toFixed(2)} | ${goal === undefined ? '' : `≥ ${goal.toFixed(2)}`} | ${verdict} |`;
    });
  return [
    `| ${name} | requests per second per core | CPU µs a request | requests per second here | ours, times | goal | verdict |`,
    '|---|---|---|---|---|---|---|',
    ...rows,
  ];
}

async function addedTable(lanes, rounds) {
  const took = new Map(lanes.map((lane) => [lane, { p50: [], p99: [], failed: 0 }]));
  const script = fileURLToPath(new URL('rate.mjs', import.meta.url));
  for (let round = 0; round < rounds; round += 1) {
    for (const lane of lanes) {
      const words = [script, String(lane.port), app, '/', '200', '2'];
      const { stdout } = await run(...pinned(cores.around, process.execPath, words), {
        maxBuffer: 64 * 1024 * 1024,
      });
      const answer = JSON.parse(stdout);
      answer.took.sort((a, b) => a - b);
      const at = (share) => answer.took[Math.ceil(answer.took.length * share) - 1];
      const one = took.get(lane);
      one.p50.push(at(0.5));
      one.p99.push(at(0.99));
      one.failed += answer.failed;
    }
  }
  const direct = took.get(lanes.find((lane) => lane.isDirect));
  return [
    '| at 200 requests a second, ms | p50 | p99 | added p50 | added p99 | failed | goal | verdict |',
    '|---|---|---|---|---|---|---|---|',
    ...lanes.map((lane) => {
      const one = took.get(lane);
      const added = (which) => median(one[which].map((value, index) => value - direct[which][index]));
      const isOurs = lane.name === 'edge';
      const verdict = isOurs ? (added('p50') <= 2 ? 'met' : 'missed') : '';
      return `| ${lane.name} | ${median(one.p50).toFixed(2)} | ${median(one.p99).toFixed(2)} | ${lane.isDirect ? '' : added('p50').toFixed(2)} | ${lane.isDirect ? '' : added('p99').toFixed(2)} | ${one.failed} | ${isOurs ? 'added p50 ≤ 2' : ''} | ${verdict} |`;
    }),
  ];
}
