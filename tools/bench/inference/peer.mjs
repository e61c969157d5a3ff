/** The peer that the router is compared with: not a dependency, installed below the data folder where npm may. */
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { root } from '../../start/node-binary.mjs';
import { end, freePort, untilReady } from '../src/installation.mjs';
import { pause } from './parts.mjs';

export const peerName = '@portkey-ai/gateway';
const version = '1.15.2';

async function install() {
  const folder = join(root, '.nebo', 'bench', `peer-${version}`);
  const program = join(folder, 'node_modules', peerName, 'build/start-server.js');
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true });
  // A project of its own: npm must not take the repository's for it.
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'bench-peer', private: true }));
  const words = [
    'install',
    '--no-audit',
    '--no-fund',
    '--omit=dev',
    '--ignore-scripts',
    `${peerName}@${version}`,
  ];
  await promisify(execFile)('npm', words, { cwd: folder, timeout: 180_000 });
  if (!existsSync(program)) throw new Error('npm installed it without its program');
  return program;
}

/**
 * Starts the peer in front of an upstream.
 * @returns {Promise<{ origin: string, headers: Record<string, string>, pid: number, end(): Promise<void> } | { skipped: string }>}
 */
export async function startPeer(upstream) {
  if (process.env.NEBO_BENCH_PEER === '0') return { skipped: 'NEBO_BENCH_PEER is 0' };
  let program;
  try {
    program = await install();
  } catch (error) {
    return { skipped: `it could not be installed: ${error.message.split('\n')[0]}` };
  }
  const port = await freePort();
  const child = spawn(process.execPath, [program, `--port=${port}`, '--headless'], {
    stdio: 'ignore',
    env: { ...process.env, NODE_ENV: 'production' },
  });
  const isReady = await Promise.race([
    untilReady(`http://127.0.0.1:${port}/`, child).then(
      () => true,
      () => false,
    ),
    pause(20_000).then(() => false),
  ]);
  if (!isReady) {
    await end(child, 'SIGKILL');
    return { skipped: 'it does not start' };
  }
  return {
    origin: `http://127.0.0.1:${port}`,
    headers: { 'x-portkey-provider': 'openai', 'x-portkey-custom-host': `${upstream}/v1` },
    pid: child.pid,
    end: () => end(child),
  };
}
