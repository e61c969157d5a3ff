import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { chooseForm } from './engine.js';
import {
  endProcess,
  findProgram,
  freePort,
  noteLive,
  notePid,
  tempFolder,
  waitFor,
  type Found,
} from './parts.js';

/** A running nats-server with JetStream (file store). */
export interface NatsPart {
  /** `nats://host:port`; the port stays the same over kill, restart and wipe. */
  readonly url: string;
  readonly form: 'local' | 'container';
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts again on the same store. */
  restart(): Promise<void>;
  /** Loses the whole JetStream store: kill, empty store, start. Everything must be rebuilt from PostgreSQL then. */
  wipe(): Promise<void>;
  stop(): Promise<void>;
}

/** Looks for nats-server on PATH, in /usr/sbin, /usr/bin, /usr/local/bin and where `go install` puts it. */
export function findNats(): Found<string> {
  const goPath = process.env['GOPATH'] ?? join(homedir(), 'go');
  const found = findProgram('nats-server', [
    '/usr/sbin',
    '/usr/bin',
    '/usr/local/bin',
    '/opt/homebrew/bin',
    join(goPath, 'bin'),
  ]);
  if (found !== null) return { found, reason: null };
  return {
    found,
    reason:
      'nats-server is not installed (Debian package nats-server, Homebrew nats-server, or go install github.com/nats-io/nats-server/v2@latest)',
  };
}

/** Starts a NATS server of its own. @throws Error with `findNats`'s reason when there is neither engine nor binary */
export async function startNats(): Promise<NatsPart> {
  return chooseForm(
    'nats',
    async () => (await import('./containers.js')).startNatsContainer(),
    startLocal,
    `binary ${findNats().found ?? 'nats-server'}`,
  );
}

/** Waits for the INFO line that nats-server sends to each new connection. */
export function natsAnswers(host: string, port: number, limit = 15_000): Promise<true> {
  return waitFor(`nats-server on ${host}:${port}`, limit, () => greeting(host, port));
}

function greeting(host: string, port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (answer: true | undefined) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(1_000, () => end(undefined));
    socket.on('error', () => end(undefined));
    socket.on('close', () => resolve(undefined));
    socket.on('data', (data: Buffer) => end(data.toString('latin1').startsWith('INFO ') ? true : undefined));
  });
}

async function startLocal(): Promise<NatsPart> {
  const { found, reason } = findNats();
  if (found === null) throw new Error(reason!);
  const folder = await tempFolder('nats');
  const store = join(folder.path, 'store');
  const log = join(folder.path, 'log');
  let child: ChildProcess | undefined;
  let port = await freePort();
  const start = async () => {
    const output = openSync(log, 'a');
    const started = spawn(found, ['-js', '-sd', store, '-a', '127.0.0.1', '-p', String(port)], {
      stdio: ['ignore', output, output],
      detached: true,
      cwd: folder.path,
    });
    closeSync(output);
    child = started;
    let failure: Error | undefined;
    started.on('error', (error) => (failure = error));
    if (started.pid !== undefined) notePid(started.pid);
    started.unref();
    await waitFor('nats-server', 15_000, async () => {
      if (failure !== undefined) throw failure;
      if (started.exitCode !== null || started.signalCode !== null) {
        throw new Error(`nats-server ended at start:\n${(await readFile(log, 'utf8')).slice(-800)}`);
      }
      return greeting('127.0.0.1', port);
    });
  };
  const end = async (signal: NodeJS.Signals) => {
    if (child !== undefined) await endProcess(child, signal);
    child = undefined;
  };
  const stop = async () => {
    forget();
    await end('SIGKILL');
    folder.remove();
  };
  const forget = noteLive(stop);
  for (let attempt = 0; ; attempt += 1) {
    try {
      await start();
      break;
    } catch (error) {
      // A neighbour may have taken the port between finding and binding it.
      if (attempt < 4 && /address already in use/.test((error as Error).message)) {
        port = await freePort();
        continue;
      }
      await stop();
      throw error;
    }
  }
  return {
    url: `nats://127.0.0.1:${port}`,
    form: 'local',
    kill: () => end('SIGKILL'),
    async restart() {
      await end('SIGTERM');
      await start();
    },
    async wipe() {
      await end('SIGKILL');
      await rm(store, { recursive: true, force: true });
      await start();
    },
    stop,
  };
}
