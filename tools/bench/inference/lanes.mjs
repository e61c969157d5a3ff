/** What is measured: the same requests, sent straight to the upstream, through pass-throughs, through ours, through the peer. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cpuSeconds, residentBytes, startInstallation } from '../src/installation.mjs';
import { startSplit } from '../src/split.mjs';
import { cpuOf, descendants, pause, pin, startPassThrough } from './parts.mjs';
import { peerName, startPeer } from './peer.mjs';
import { model } from './requests.mjs';

/** Core of everything but what is measured; core of that. */
export const cores = { around: 0, measured: 1 };
/** Rubles; the bench must never end for want of money. */
const topUp = '1000000';
/** Processes of the split form that a request passes. */
const onTheWay = ['api-gateway', 'inference-router', 'identity-billing'];

/**
 * One way for a request to take.
 * @typedef {{ name: string, origin: string, headers: Record<string, string>, pids: number[], database: () => number[],
 *   idle: number, isOurs: boolean, plainOnly: boolean, newKey?: () => Promise<string>, startSeconds?: number,
 *   resident?: () => number }} Lane
 */

const lane = (name, origin, pids, more = {}) => ({
  name,
  origin,
  pids,
  headers: { authorization: 'Bearer none' },
  database: () => [],
  idle: 0,
  isOurs: false,
  plainOnly: false,
  ...more,
});

async function keysOf(admin) {
  const { account_id: account } = await admin('account', 'create', '--name', 'bench', '--topup', topUp);
  const newKey = async () => (await admin('inference-key', 'create', '--account', account)).key;
  return { newKey, headers: { authorization: `Bearer ${await newKey()}` } };
}

async function oneProcess(env) {
  const one = await startInstallation(undefined, undefined, env);
  const startSeconds = cpuSeconds(one.child.pid);
  const { pid } = one.child;
  return {
    ...lane('ours, one process', one.credentials.ai_url, [pid], await keysOf(one.admin)),
    isOurs: true,
    startSeconds,
    database: () => descendants(pid, 'postgres'),
    resident: () => residentBytes(pid),
    end: async () => {
      await one.stop();
      one.remove();
    },
  };
}

/** @param other process whose PostgreSQL is not this form's; that is a child of the bench itself */
async function acrossProcesses(env, other) {
  const split = await startSplit({ env });
  const pidOf = (name) => split.parts[name].child.pid;
  const router = pidOf('inference-router');
  return {
    ...lane('ours, across processes', split.aiUrl, onTheWay.map(pidOf), await keysOf(split.admin)),
    isOurs: true,
    isSplit: true,
    startSeconds: cpuSeconds(router),
    database: () => {
      const others = new Set(descendants(other, 'postgres'));
      return descendants(process.pid, 'postgres').filter((pid) => !others.has(pid));
    },
    resident: () => residentBytes(router),
    end: split.stop,
  };
}

/**
 * Starts all lanes, each of them pinned.
 * @returns {Promise<{ lanes: Record<string, Lane>, skipped: string[], end(): Promise<void> }>}
 */
export async function startLanes(upstream) {
  const home = mkdtempSync(join(tmpdir(), 'nebo-bench-inference-'));
  const file = join(home, 'inference.yaml');
  writeFileSync(
    file,
    [
      'providers:',
      `  bench: { base_url: "${upstream}/v1", dialect: openai }`,
      'models:',
      `  ${model}: { upstreams: [{ provider: bench, model: bench }] }`,
      '',
    ].join('\n'),
  );
  const skipped = [];
  const ends = [() => rmSync(home, { recursive: true, force: true })];
  const lanes = { raw: lane('raw upstream', upstream, []) };
  const end = async () => {
    for (const one of ends.reverse()) await one();
  };
  try {
    for (const [id, form, name] of [
      ['pass', 'pipe', 'pass-through'],
      ['least', 'dispatch', 'pass-through by undici’s dispatch'],
    ]) {
      const part = await startPassThrough(upstream, form);
      ends.push(() => part.end());
      lanes[id] = lane(name, part.origin, [part.child.pid]);
    }
    const env = { NEBO_INFERENCE_CONFIG: file };
    lanes.one = await oneProcess(env);
    ends.push(lanes.one.end);
    try {
      lanes.split = await acrossProcesses(env, lanes.one.pids[0]);
      ends.push(lanes.split.end);
    } catch (error) {
      skipped.push(`the form across processes: ${error.message.split('\n')[0]}`);
    }
    const peer = await startPeer(upstream);
    if ('skipped' in peer) skipped.push(`${peerName}: ${peer.skipped}`);
    else {
      ends.push(peer.end);
      lanes.peer = lane(peerName, peer.origin, [peer.pid], {
        headers: { authorization: 'Bearer none', ...peer.headers },
      });
    }
    for (const { pids } of Object.values(lanes)) for (const pid of pids) pin(pid, cores.measured);
    await measureIdle(Object.values(lanes));
    return { lanes, skipped, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** CPU seconds a second that a lane uses without requests: the rest of a cloud in its process, for one. */
async function measureIdle(lanes) {
  await pause(1_000);
  const before = lanes.map(({ pids }) => cpuOf(pids));
  const began = performance.now();
  await pause(2_500);
  const seconds = (performance.now() - began) / 1_000;
  lanes.forEach((one, index) => (one.idle = (cpuOf(one.pids) - before[index]) / seconds));
}
