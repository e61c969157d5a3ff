import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { cpuSeconds, end, freePort, median, startInstallation, untilReady } from './installation.mjs';
import { load } from './load.mjs';
import { startSplit } from './split.mjs';

const rounds = 7;
const roundMs = 1_000;

async function makeApp({ baseUrl, key, credentials }) {
  const answer = await fetch(`${baseUrl}/projects/${credentials.accounts[0].project_id}/apps`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'bench', source_type: 'upload' }),
  });
  if (answer.status !== 201) throw new Error(`making the app: ${answer.status} ${await answer.text()}`);
  return (await answer.json()).id;
}

/** CPU per request of reading one app through the gateway, against a bare hello, interleaved. */
export async function benchGateway() {
  const port = await freePort();
  const hello = spawn(
    process.execPath,
    [fileURLToPath(new URL('hello.mjs', import.meta.url)), String(port)],
    { stdio: 'inherit' },
  );
  await untilReady(`http://127.0.0.1:${port}/`, hello);
  const one = await startInstallation();
  const split = await startSplit().catch((error) => {
    console.error(`  split form left out: ${error.message}`);
    return null;
  });
  const lanes = [
    { name: 'bare node:http hello', url: `http://127.0.0.1:${port}/`, pids: [hello.pid], goal: 1 },
    {
      name: 'GET one app, one process',
      url: `${one.baseUrl}/apps/${await makeApp(one)}`,
      key: one.key,
      pids: [one.child.pid],
      goal: 7,
    },
  ];
  if (split)
    lanes.push({
      name: 'GET one app, across processes',
      url: `${split.baseUrl}/apps/${await makeApp(split)}`,
      key: split.key,
      pids: split.pids,
      goal: 12,
    });
  try {
    for (const lane of lanes) await load({ ...laneLoad(lane), ms: 2_000 }); // warm
    for (let round = 0; round < rounds; round += 1) {
      for (const lane of lanes) await measure(lane);
    }
  } finally {
    await end(hello);
    await one.stop();
    one.remove();
    await split?.stop();
  }
  const base = median(lanes[0].microseconds);
  return [
    '| what | CPU µs per request (median of rounds) | times the hello | goal | requests per second |',
    '|---|---|---|---|---|',
    ...lanes.map((lane) => {
      const cpu = median(lane.microseconds);
      return `| ${lane.name} | ${cpu.toFixed(0)} | ${(cpu / base).toFixed(1)} | ≤ ${lane.goal} | ${Math.round(median(lane.perSecond))} |`;
    }),
  ].join('\n');
}

const laneLoad = (lane) => ({
  url: lane.url,
  headers: lane.key ? { authorization: `Bearer ${lane.key}` } : {},
});

async function measure(lane) {
  const before = lane.pids.map(cpuSeconds);
  const requests = await load({ ...laneLoad(lane), ms: roundMs });
  const used = lane.pids.map(cpuSeconds).reduce((sum, seconds, index) => sum + seconds - before[index], 0);
  (lane.microseconds ??= []).push((used / requests) * 1e6);
  (lane.perSecond ??= []).push(requests / (roundMs / 1000));
}
