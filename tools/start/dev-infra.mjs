/**
 * PostgreSQL and NATS for `nx serve <service>`: `npm run dev:infra`. Data stays in .nebo/dev-postgres and .nebo/dev-nats
 * (NEBO_HOME); NEBO_DEV_PG_PORT 5433, NEBO_DEV_NATS_PORT 4223. Ctrl-C stops both.
 */
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { root } from './node-binary.mjs';
// Node strips the types of this one file itself: it has no relative imports, and no build is needed before a service is.
import {
  findPostgres,
  initData,
  makeOnce,
  startServer,
} from '../../libs/embedded-postgres/src/postgres-binaries.ts';

const home = resolve(root, process.env.NEBO_HOME ?? '.nebo');
const pgPort = port('NEBO_DEV_PG_PORT', 5433);
const natsPort = port('NEBO_DEV_NATS_PORT', 4223);
const children = [];
let stopping = false;

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => void stop(0));
try {
  await main();
} catch (error) {
  console.error(`dev-infra: ${error.message}`);
  await stop(1);
}

async function main() {
  mkdirSync(home, { recursive: true });
  clearLeftOver();
  for (const [name, wanted] of [
    ['NEBO_DEV_PG_PORT', pgPort],
    ['NEBO_DEV_NATS_PORT', natsPort],
  ]) {
    if (await answers(wanted)) throw new Error(`port ${wanted} is taken; choose another one with ${name}`);
  }
  await startPostgres();
  const nats = await startNats();
  console.log(`export DATABASE_URL=postgres://postgres@127.0.0.1:${pgPort}/nebo`);
  if (nats) console.log(`export NATS_URL=nats://127.0.0.1:${natsPort}`);
  console.log(`
# Paste the lines above into another terminal, then start a service, e.g.:
#   npx nx serve identity-billing
# Its main.ts applies its own migrations. Data is kept in ${home}; Ctrl-C here stops ${nats ? 'both' : 'PostgreSQL'}.`);
}

/** After a `kill -9` of this script its parts live on: they are stopped here, unless another dev-infra owns them. */
function clearLeftOver() {
  const mine = join(home, 'dev-infra.pid');
  const owner = pidIn(mine);
  if (owner !== null && runs(owner, 'dev-infra.mjs')) {
    throw new Error(`already running here as pid ${owner}; stop it first`);
  }
  for (const [file, words, signal] of [
    [join(home, 'dev-postgres', 'postmaster.pid'), join(home, 'dev-postgres'), 'SIGQUIT'],
    [join(home, 'dev-nats.pid'), join(home, 'dev-nats'), 'SIGKILL'],
  ]) {
    const pid = pidIn(file);
    if (pid === null || !runs(pid, words)) continue;
    process.kill(pid, signal);
    for (let waited = 0; waited < 100 && runs(pid, words); waited += 1) {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    }
  }
  writeFileSync(mine, String(process.pid));
}

function pidIn(file) {
  const pid = existsSync(file) ? Number.parseInt(readFileSync(file, 'utf8'), 10) : NaN;
  return pid > 1 ? pid : null;
}

/** Is this pid alive with these words on its command line? A pid alone may be somebody else's by now. */
function runs(pid, words) {
  try {
    return execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8' }).includes(words);
  } catch {
    return false;
  }
}

async function startPostgres() {
  const scratch = join(tmpdir(), `nebo-dev-${process.getuid?.() ?? 0}`);
  mkdirSync(scratch, { recursive: true, mode: 0o755 });
  const binaries = await findPostgres(scratch);
  const data = join(home, 'dev-postgres');
  if (binaries.runAs !== null) {
    const shut = closedFolder(home);
    if (shut !== null) {
      throw new Error(
        `PostgreSQL cannot run as root, and its user cannot enter ${shut}; set NEBO_HOME to a folder that all may enter, or run this as a normal user`,
      );
    }
  }
  await makeOnce(data, (target) => initData(binaries, target));
  // A checkout that another user used before: the data must belong to who runs the server.
  if (binaries.runAs !== null && statSync(data).uid !== binaries.runAs.uid) {
    throw new Error(
      `${data} belongs to another user (uid ${statSync(data).uid}); move it away or start this as that user`,
    );
  }
  chmodSync(data, 0o700);
  const log = join(home, 'dev-postgres.log');
  const child = await startServer(
    binaries,
    { data, port: pgPort, log, settings: { timezone: 'UTC' } },
    (started) => children.push({ name: 'PostgreSQL', child: started, signal: 'SIGINT' }),
  );
  child.on('exit', () => stopping || ended('PostgreSQL', log));
  const { default: pg } = await import('pg');
  const client = new pg.Client({ host: '127.0.0.1', port: pgPort, user: 'postgres', database: 'postgres' });
  await client.connect();
  const present = await client.query("select 1 from pg_database where datname = 'nebo'");
  if (present.rowCount === 0) await client.query('create database nebo');
  await client.end();
}

async function startNats() {
  const further = [
    '/usr/sbin',
    '/usr/local/bin',
    '/opt/homebrew/bin',
    join(process.env.GOPATH ?? join(process.env.HOME ?? '', 'go'), 'bin'),
  ];
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...further];
  const binary = folders.map((folder) => join(folder, 'nats-server')).find((path) => existsSync(path));
  if (binary === undefined) {
    console.error(
      '# nats-server is missing (Debian: apt-get install nats-server, macOS: brew install nats-server): each service then has a bus of its own and hears no other. PostgreSQL goes on.',
    );
    return false;
  }
  const store = join(home, 'dev-nats');
  mkdirSync(store, { recursive: true });
  const args = [
    '-P',
    join(home, 'dev-nats.pid'),
    '-js',
    '-sd',
    store,
    '-a',
    '127.0.0.1',
    '-p',
    String(natsPort),
    '-l',
    join(home, 'dev-nats.log'),
  ];
  const child = spawn(binary, args, { stdio: 'ignore', detached: true });
  children.push({ name: 'nats-server', child, signal: 'SIGTERM' });
  child.on('error', (error) => stopping || ended('nats-server', error.message));
  child.on('exit', () => stopping || ended('nats-server', join(home, 'dev-nats.log')));
  for (let waited = 0; waited < 10_000; waited += 50) {
    if (await answers(natsPort)) return true;
    await new Promise((wake) => setTimeout(wake, 50));
  }
  throw new Error(`nats-server does not answer on port ${natsPort}`);
}

/** A part ended by itself: say so with the end of its log, and stop the other. */
function ended(name, log) {
  const tail = existsSync(log) ? readFileSync(log, 'utf8').trimEnd().split('\n').slice(-5).join('\n') : log;
  console.error(`dev-infra: ${name} ended:\n${tail}`);
  void stop(1);
}

async function stop(code) {
  if (stopping) return;
  stopping = true;
  await Promise.all(
    children.map(
      ({ child, signal }) =>
        new Promise((done) => {
          if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return done();
          const timer = setTimeout(() => child.kill('SIGKILL'), 8_000);
          child.once('exit', () => {
            clearTimeout(timer);
            done();
          });
          child.kill(signal);
        }),
    ),
  );
  if (pidIn(join(home, 'dev-infra.pid')) === process.pid)
    rmSync(join(home, 'dev-infra.pid'), { force: true });
  process.exit(code);
}

function port(name, otherwise) {
  const value = Number(process.env[name] ?? otherwise);
  if (Number.isInteger(value) && value > 0 && value < 65_536) return value;
  console.error(`dev-infra: ${name} must be a port number`);
  process.exit(1);
}

function answers(at) {
  return new Promise((done) => {
    const socket = connect({ host: '127.0.0.1', port: at });
    socket.once('error', () => done(false));
    socket.once('connect', () => {
      socket.destroy();
      done(true);
    });
  });
}

/** The first folder on the way that only its owner may enter, or null. */
function closedFolder(path) {
  for (let at = path; ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return at;
    if (at === dirname(at)) return null;
  }
}
