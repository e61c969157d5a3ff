import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '../../../e2e/harness/ports.mjs';
import { root } from '../../start/node-binary.mjs';

export { freePort };

/** Waits until a URL answers 200; looks every 10 ms, since a start is measured with it. */
export async function untilReady(url, child) {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the process ended with ${child.exitCode}`);
    const answer = await fetch(url).catch(() => null);
    await answer?.body?.cancel();
    if (answer?.status === 200) return;
    await new Promise((done) => setTimeout(done, 10));
  }
}

/** Ends a child and waits for it. */
export async function end(child, signal = 'SIGTERM') {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((done) => child.once('exit', done));
  child.kill(signal);
  await ended;
}

/**
 * An installation for measuring: own data, own ports, no rate limit.
 * @param more settings beside those
 */
export async function startInstallation(
  home = mkdtempSync(join(tmpdir(), 'nebo-bench-')),
  command = ['apps/all-in-one/dist/main.js'],
  more = {},
) {
  const [api, ai, edge, tls, dns] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const env = {
    ...process.env,
    NEBO_HOME: home,
    NEBO_API_PORT: api,
    NEBO_AI_PORT: ai,
    NEBO_EDGE_PORT: edge,
    NEBO_EDGE_TLS_PORT: tls,
    NEBO_DNS_PORT: dns,
    NEBO_RATE_LIMIT: '0',
    NEBO_LOG_LEVEL: 'error',
    ...more,
  };
  const begun = performance.now();
  const child = spawn(process.execPath, command, { cwd: root, stdio: ['ignore', 'ignore', 'inherit'], env });
  await untilReady(`http://127.0.0.1:${api}/healthz`, child);
  const readyMs = performance.now() - begun;
  const credentials = JSON.parse(readFileSync(join(home, 'credentials.json'), 'utf8'));
  return {
    child,
    home,
    readyMs,
    credentials,
    baseUrl: credentials.base_url,
    key: credentials.accounts[0].api_key,
    /** Runs an operator's command. */
    admin: async (...words) =>
      JSON.parse(
        (
          await promisify(execFile)(process.execPath, ['apps/all-in-one/dist/admin.js', ...words, '--json'], {
            cwd: root,
            env,
          })
        ).stdout,
      ),
    stop: () => end(child),
    remove: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** CPU seconds that a process has used, all threads, by the scheduler's own clock (nanoseconds, not ticks). */
export function cpuSeconds(pid) {
  let nanoseconds = 0;
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    nanoseconds += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]);
  }
  return nanoseconds / 1e9;
}

/** Resident bytes of a process. */
export function residentBytes(pid) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
}

export const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** The value below which a part (0 to 1) of the values lies. */
export const quantile = (values, part) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))];
