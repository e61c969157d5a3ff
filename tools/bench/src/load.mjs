import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Pool } from 'undici';

const wrk = '/usr/bin/wrk';

/**
 * Keeps `connections` GETs under way for `ms`, the given requests in turn; with wrk where it is installed, since a load
 * generator in JavaScript takes the processor from what is measured.
 * @param {{ origin: string, requests: { path: string, headers: Record<string, string> }[], ms: number, connections?: number }} options
 * @returns requests that were answered with 200; anything else throws
 */
export function load(options) {
  return existsSync(wrk) ? wrkLoad(options) : nodeLoad(options);
}

/** wrk's script: the requests as ready texts, so that choosing one costs nothing. */
const script = (requests) => `
local texts = {}
local at = 0
function init()
${requests
  .map(({ path, headers }) => {
    const fields = Object.entries(headers).map(([name, value]) => `[${lua(name)}] = ${lua(value)}`);
    return `  table.insert(texts, wrk.format("GET", ${lua(path)}, { ["Host"] = wrk.headers["Host"], ${fields.join(', ')} }))`;
  })
  .join('\n')}
end
function request()
  at = at % #texts + 1
  return texts[at]
end
`;

/** A text of Lua; what is sent here has only characters that JSON and Lua write alike. */
const lua = (text) => JSON.stringify(text);

async function wrkLoad({ origin, requests, ms, connections = 32 }) {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-wrk-'));
  try {
    const file = join(folder, 'requests.lua');
    writeFileSync(file, script(requests), { mode: 0o600 });
    const seconds = Math.max(1, Math.round(ms / 1000));
    const args = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '-s', file, origin];
    const { stdout } = await promisify(execFile)(wrk, args);
    if (/Non-2xx|Socket errors/.test(stdout)) throw new Error(`${origin}: ${stdout}`);
    return Number(/(\d+) requests in/.exec(stdout)[1]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function nodeLoad({ origin, requests, ms, connections = 32 }) {
  const pool = new Pool(origin, { connections, pipelining: 1 });
  const end = performance.now() + ms;
  let sent = 0;
  let answered = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const { path, headers } = requests[sent++ % requests.length];
      const answer = await pool.request({ method: 'GET', path, headers });
      await answer.body.dump();
      if (answer.statusCode !== 200) throw new Error(`${origin}${path} answered ${answer.statusCode}`);
      answered += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: connections }, worker));
  } finally {
    await pool.close();
  }
  return answered;
}
