import { spawn } from 'node:child_process';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { cpuSeconds, end, freePort, median, startInstallation, untilReady } from './installation.mjs';
import { load } from './load.mjs';
import { startSplit } from './split.mjs';

const rounds = 9;
const roundMs = 1_000;
const accounts = 4;
const appsOfEach = 4;

/**
 * Reads of several apps of several accounts: what one request asks for must not help another one.
 * @returns {Promise<{ path: string, headers: Record<string, string> }[]>}
 */
async function appReads({ baseUrl, admin }) {
  const reads = [];
  for (let account = 0; account < accounts; account += 1) {
    const { account_id, project_id } = await admin('account', 'create', '--name', `bench ${account}`);
    const { key } = await admin('key', 'create', '--account', account_id);
    const authorization = `Bearer ${key}`;
    for (let app = 0; app < appsOfEach; app += 1) {
      const answer = await fetch(`${baseUrl}/projects/${project_id}/apps`, {
        method: 'POST',
        headers: { authorization, 'content-type': 'application/json' },
        body: JSON.stringify({ name: `bench ${app}`, source_type: 'upload' }),
      });
      if (answer.status !== 201) throw new Error(`making an app: ${answer.status} ${await answer.text()}`);
      reads.push({ path: `/v1/apps/${(await answer.json()).id}`, headers: { authorization } });
    }
  }
  // The accounts take turns.
  return reads.map((_, index) => reads[(index * appsOfEach + Math.floor(index / accounts)) % reads.length]);
}

/** CPU per request of reading one app through the gateway, against a bare hello, interleaved. */
export async function benchGateway() {
  const [before] = loadavg();
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
  const helloLane = (name, path) => ({
    name,
    origin: `http://127.0.0.1:${port}`,
    requests: [{ path, headers: {} }],
    pids: [hello.pid],
    goal: '',
  });
  const appLane = async (name, installation, pids, goal) => ({
    name,
    origin: new URL(installation.baseUrl).origin,
    requests: await appReads(installation),
    pids,
    goal: `≤ ${goal}`,
  });
  const lanes = [
    helloLane('bare node:http hello', '/'),
    helloLane('the same with a body as long as an app', '/long'),
    await appLane('GET one app, one process', one, [one.child.pid], 7),
  ];
  if (split) lanes.push(await appLane('GET one app, across processes', split, split.pids, 12));
  try {
    for (const lane of lanes) await load({ ...lane, ms: 2_000 }); // warm
    for (let round = 0; round < rounds; round += 1) {
      for (const lane of lanes) await measure(lane);
    }
  } finally {
    await end(hello);
    await one.stop();
    one.remove();
    await split?.stop();
  }
  return [
    `Load of the machine before and after: ${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}.`,
    '',
    '| what | CPU µs per request, median of rounds | least | times the hello, median of rounds | by the least | goal | requests per second |',
    '|---|---|---|---|---|---|---|',
    ...lanes.map((lane) => {
      // A round of each lane follows the other within seconds, so a neighbour slows both.
      const times = median(lane.microseconds.map((cpu, round) => cpu / lanes[0].microseconds[round]));
      const least = Math.min(...lane.microseconds);
      const timesLeast = least / Math.min(...lanes[0].microseconds);
      return `| ${lane.name} | ${median(lane.microseconds).toFixed(1)} | ${least.toFixed(1)} | ${times.toFixed(1)} | ${timesLeast.toFixed(1)} | ${lane.goal} | ${Math.round(median(lane.perSecond))} |`;
    }),
  ].join('\n');
}

async function measure(lane) {
  const before = lane.pids.map(cpuSeconds);
  const requests = await load({ ...lane, ms: roundMs });
  const used = lane.pids.map(cpuSeconds).reduce((sum, seconds, index) => sum + seconds - before[index], 0);
  (lane.microseconds ??= []).push((used / requests) * 1e6);
  (lane.perSecond ??= []).push(requests / (roundMs / 1000));
}
