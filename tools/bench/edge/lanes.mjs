import { spawn, execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cpuSeconds, freePort } from '../src/installation.mjs';
import { caddy, nginx, pinned } from './peers.mjs';

/** What is measured has the first core, all else the second. */
export const cores = { measured: 0, around: 1 };
export const app = 'app.apps.localhost';
export const files = 'files.apps.localhost';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

/** The files that are served: random letters, so that nobody gains by compressing. */
export function makeSite(folder) {
  const site = join(folder, 'site');
  mkdirSync(site);
  writeFileSync(join(site, 'small.bin'), Buffer.alloc(1024, 'abcdefgh'));
  writeFileSync(join(site, 'large.bin'), Buffer.alloc(100 * 1024, 'abcdefgh'));
  execFileSync('tar', ['-czf', join(folder, 'site.tar.gz'), '-C', site, '.']);
  return site;
}

/** A certificate for both names, as files, for the peers; the edge makes its own of the same kind (ECDSA P-256). */
export function makeCertificate(folder) {
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const names = `subjectAltName=DNS:${app},DNS:${files}`;
  execFileSync(
    'openssl',
    [...words, '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=bench', '-addext', names],
    {
      stdio: 'ignore',
    },
  );
  return { cert, key };
}

/**
 * Starts the app, the edge and those peers that are installed.
 * @returns lanes in the order of the table, and what was left out
 */
export async function startLanes(folder) {
  const site = makeSite(folder);
  const { cert, key } = makeCertificate(folder);
  const backend = await freePort();
  const children = [];
  const skipped = [];
  const keep = (child) => (children.push(child), child);

  const end = async () => {
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
    }
  };
  try {
    return { ...(await makeLanes()), end };
  } catch (error) {
    await end();
    throw error;
  }

  async function makeLanes() {
    // The app is on the generator's core: the cheaper it is, the more of that core is left to ask with.
    keep(
      spawn(...pinned(cores.around, process.execPath, [here('backend.mjs'), String(backend)]), {
        stdio: ['ignore', 'ignore', 'inherit'],
      }),
    );
    await untilOpen(backend);
    const lanes = [{ name: 'direct', pid: children[0].pid, port: backend, isDirect: true }];

    for (const [name, log] of [
      ['edge', []],
      ['edge with its access log', ['log']],
    ]) {
      const home = join(folder, name.replaceAll(' ', '-'));
      mkdirSync(home);
      execFileSync('cp', [join(folder, 'site.tar.gz'), home]);
      const child = keep(
        spawn(
          ...pinned(cores.measured, process.execPath, [
            ...(process.env.NEBO_BENCH_NODE_ARGS?.split(' ') ?? []),
            here('server.mjs'),
            home,
            String(backend),
            ...log,
          ]),
          { stdio: ['ignore', 'pipe', 'inherit'] },
        ),
      );
      const line = await new Promise((done, fail) => {
        child.stdout.once('data', (data) => done(String(data)));
        child.once('exit', () => fail(new Error('the edge ended')));
      });
      const { port, tlsPort } = JSON.parse(line);
      lanes.push({ name, pid: child.pid, port, tlsPort });
    }
    for (const [name, start] of [
      ['Caddy', caddy],
      ['nginx', nginx],
    ]) {
      const place = { folder, site, backend, port: await freePort(), tlsPort: await freePort(), cert, key };
      const started = start(place, cores.measured);
      if (!started) skipped.push(`${name} is not installed (Debian: caddy, nginx-light)`);
      else {
        keep(started.child);
        await untilOpen(place.port);
        lanes.push({ name, pid: started.child.pid, port: place.port, tlsPort: place.tlsPort });
      }
    }
    return { lanes, skipped };
  }
}

/** CPU seconds of a process and of those that it has started. */
export function treeSeconds(pid) {
  let sum = cpuSeconds(pid);
  for (const child of childrenOf(pid)) sum += treeSeconds(child);
  return sum;
}

function childrenOf(pid) {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
}

async function untilOpen(port) {
  for (let turn = 0; ; turn += 1) {
    const open = await new Promise((done) => {
      const socket = createConnection(port, '127.0.0.1');
      socket.once('connect', () => (socket.destroy(), done(true))).once('error', () => done(false));
    });
    if (open) return;
    if (turn > 500) throw new Error(`nobody listens on ${port}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
