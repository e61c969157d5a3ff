import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import { Pool } from 'undici';

const wrk = '/usr/bin/wrk';

/**
 * Keeps `connections` requests under way for `ms`; with wrk where it is installed, since a load generator in JavaScript takes
 * the processor from what is measured.
 * @returns requests that were answered with 200; anything else throws
 */
export function load(options) {
  return existsSync(wrk) ? wrkLoad(options) : nodeLoad(options);
}

async function wrkLoad({ url, headers = {}, ms, connections = 32 }) {
  const seconds = Math.max(1, Math.round(ms / 1000));
  const args = [
    '-t',
    '1',
    '-c',
    String(connections),
    '-d',
    `${seconds}s`,
    ...Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]),
    url,
  ];
  const { stdout } = await promisify(execFile)(wrk, args);
  if (/Non-2xx/.test(stdout)) throw new Error(`${url}: ${stdout}`);
  return Number(/(\d+) requests in/.exec(stdout)[1]);
}

async function nodeLoad({ url, headers = {}, ms, connections = 32 }) {
  const { origin, pathname, search } = new URL(url);
  const pool = new Pool(origin, { connections, pipelining: 1 });
  const end = performance.now() + ms;
  let requests = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const answer = await pool.request({ method: 'GET', path: pathname + search, headers });
      await answer.body.dump();
      if (answer.statusCode !== 200) throw new Error(`${url} answered ${answer.statusCode}`);
      requests += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: connections }, worker));
  } finally {
    await pool.close();
  }
  return requests;
}
