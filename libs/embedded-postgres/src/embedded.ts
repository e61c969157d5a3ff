import { type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findPostgres, initData, logTail, startServer } from './postgres-binaries.js';

/** PostgreSQL that this process runs for itself. */
export interface EmbeddedPostgres {
  /** Connection string of the superuser. */
  url: string;
  stop(): Promise<void>;
}

const settings = {
  shared_buffers: '64MB',
  max_connections: '200',
  jit: 'off',
  timezone: 'UTC',
  log_min_messages: 'warning',
  // Durable, but the disk is not asked to flush more than a commit needs.
  wal_level: 'minimal',
  max_wal_senders: '0',
  // A data folder with small segments is made with 64 MB, which a busy router fills in seconds: after each checkpoint every
  // page that is touched is written whole once more.
  max_wal_size: '1GB',
};

/**
 * Starts PostgreSQL on `<home>/postgres`, making the data folder on first use. A server that a killed process left on the
 * same data is stopped first.
 * @param password of the superuser; set when the data folder is made
 * @throws Error with one sentence for the user when the data folder is broken
 */
export async function startEmbeddedPostgres(home: string, password: string): Promise<EmbeddedPostgres> {
  const binaries = await findPostgres(tmpdir());
  const data = join(home, 'postgres');
  const log = join(home, 'postgres.log');
  await mkdir(home, { recursive: true, mode: 0o711 });
  if (!existsSync(join(data, 'PG_VERSION'))) {
    if (existsSync(join(data, 'base')))
      throw new Error(`${data} is not a whole PostgreSQL data folder; move it away and start again`);
    await createData(binaries, home, data, password);
  }
  await endLeftover(data);
  const { port, child } = await startOnFreePort(
    async (free) => startServer(binaries, { data, port: free, log, settings }),
    log,
    data,
  );
  return {
    url: `postgres://postgres:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`,
    stop: () => endChild(child),
  };
}

async function createData(
  binaries: Awaited<ReturnType<typeof findPostgres>>,
  home: string,
  data: string,
  password: string,
) {
  // Made beside and renamed by initdb's success only: a half-made folder is thrown away at the next start.
  await rm(data, { recursive: true, force: true });
  const passwordFile = join(home, '.postgres-password');
  await writeFile(passwordFile, password, { mode: 0o600 });
  try {
    if (binaries.runAs) await chown(passwordFile, binaries.runAs.uid, binaries.runAs.gid);
    await initData(binaries, data, passwordFile);
    await chmod(data, 0o700);
  } catch (error) {
    await rm(data, { recursive: true, force: true });
    throw new Error(
      `PostgreSQL could not make its data folder ${data}: ${initFailure((error as Error).message)}`,
      { cause: error },
    );
  } finally {
    await rm(passwordFile, { force: true });
  }
}

/** The sentence that says why initdb failed, of all that it has said: the first fault, not its goodbye. @param said its stderr */
export function initFailure(said: string): string {
  const lines = said
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
  const fault = lines.find((line) => /(?:FATAL|ERROR|error): /.test(line));
  return fault?.replace(/^.*?(?:FATAL|ERROR|error): +/, '') ?? lines.at(-1) ?? 'initdb failed';
}

/** Ends the server of an earlier process that was killed; PostgreSQL itself clears a stale pid file. */
async function endLeftover(data: string): Promise<void> {
  const pid = Number((await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0]);
  if (!(pid > 1) || !(await readlink(`/proc/${pid}/exe`).catch(() => '')).endsWith('/postgres')) return;
  try {
    process.kill(pid, 'SIGINT');
    for (let waited = 0; waited < 8_000 && isAlive(pid); waited += 50) await pause(50);
    if (isAlive(pid)) process.kill(pid, 'SIGKILL');
    for (let waited = 0; waited < 2_000 && isAlive(pid); waited += 50) await pause(50);
  } catch {
    // It ended by itself in between.
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGINT');
  const timer = setTimeout(() => child.kill('SIGQUIT'), 5_000);
  await ended;
  clearTimeout(timer);
}

/** A port that was free may be taken a moment later by a neighbour: up to five are tried. */
async function startOnFreePort(
  start: (port: number) => Promise<ChildProcess>,
  log: string,
  data: string,
): Promise<{ port: number; child: ChildProcess }> {
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    try {
      return { port, child: await start(port) };
    } catch (error) {
      const tail = await logTail(log);
      if (attempt < 5 && /could not bind|Address already in use/.test(tail)) continue;
      const last = tail.split('\n').at(-1);
      throw new Error(
        `PostgreSQL does not start on ${data}: ${last || (error as Error).message} (log: ${log})`,
        { cause: error },
      );
    }
  }
}

/** A TCP port on loopback that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}
