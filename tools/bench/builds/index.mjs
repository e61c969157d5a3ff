/**
 * `npm run bench -- builds`: the region's build against the same commands by hand, and a warm build of a source in which a file has
 * changed against a cold one. By hand means: unpack, the commands with empty caches on the host itself, pack; the limits of
 * the sandbox are those of the machine (2 processors), and both fetch through the same proxy from the same mirror, so both have
 * the same. A first build that is not counted fills the mirror; then each round has both, in turns one or the other first, and
 * what is said is the median of the rounds' ratios. Needs root, bubblewrap, a package registry, Go, Python.
 */
import { execFileSync, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { lookup } from 'node:dns/promises';
import { cpus, loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { packFolder } from '../../../libs/archive/dist/index.js';
import { parseAllowList, startEgressProxy } from '../../../libs/safe-net/dist/index.js';
import { createDrivers, egressOf, probeDrivers, Runs } from '../../../apps/region-agent/dist/index.js';
import { median } from '../inference/measure.mjs';
import { edited, projects } from './projects.mjs';

const silent = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * @param {{ size?: number, only?: string }} options `size`: how many times the project's own rounds; `only`: names of projects,
 *   separated by commas
 * @returns the table as Markdown
 */
export async function benchBuilds({ size = 1, only } = {}) {
  const before = loadavg()[0];
  const stolen = stolenTime();
  const work = mkdtempSync(join(tmpdir(), 'nebo-bench-builds-'));
  const proxy = await startEgressProxy({ allow: parseAllowList(await registry()) });
  const choices = await probeDrivers({
    NEBO_DRIVERS: 'builds=local,replicas=local,networks=simulated,machines=simulated',
  });
  const home = join(work, 'agent');
  mkdirSync(home);
  const runs = new Runs(home, silent);
  const buildLimits = { cpus: cpus().length, memoryBytes: 4 * 1024 ** 3 };
  const drivers = await createDrivers({
    home,
    log: silent,
    runs,
    egress: egressOf(proxy),
    choices,
    buildLimits,
  });
  await drivers.builds.start();
  const cpu = cpuMeter(runs.tag);
  const rows = [];
  try {
    const names = only?.split(',') ?? null;
    for (const project of projects.filter(({ name }) => names?.includes(name) ?? true))
      rows.push(
        await measureProject(project, {
          ...{ work, drivers, home },
          cpu,
          proxy: proxy.url,
          rounds: size * project.rounds,
        }),
      );
  } finally {
    await drivers.replicas.stop();
    await proxy.stop();
    rmSync(work, { recursive: true, force: true });
  }
  const head = [
    'source (rounds)',
    'by hand, s (CPU)',
    'cold build, s (CPU)',
    'overhead, time (CPU)',
    'goal',
    'warm build, s (CPU)',
    'cold / warm, time (CPU)',
    'goal',
  ];
  const line = (cells) => `| ${cells.join(' | ')} |`;
  const words =
    `Medians of rounds that take turns; driver local; load of the machine before and after: ` +
    `${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}; the host took ${(100 * stolen()).toFixed(0)} % of the processors for others. ` +
    'CPU counts every process of a build and the agent itself. Before each measurement the disk is at rest.';
  return [words, '', line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

async function registry() {
  if (process.env.NEBO_TEST_NETWORK) return process.env.NEBO_TEST_NETWORK;
  const text = execFileSync('npm', ['config', 'get', 'registry'], { cwd: tmpdir(), encoding: 'utf8' });
  const { hostname } = new URL(text.trim());
  return `${(await lookup(hostname, { family: 4 })).address}:443`;
}

async function measureProject(project, { work, drivers, home, cpu, proxy, rounds }) {
  const dir = join(work, 'source');
  rmSync(dir, { recursive: true, force: true });
  const write = (path, text) => {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), text);
  };
  for (const [path, text] of Object.entries(project.files)) write(path, text);
  if (project.lock) lock(dir);
  const first = await packed(dir);
  write(project.edit, edited(project.edit, project.files[project.edit]));
  const changed = await packed(dir);
  const ours = async (app, source) => {
    const figure = await measured(cpu, () => build(drivers.builds, app, source));
    await settled(home);
    return figure;
  };
  const hand = async () => {
    // What was measured is removed at the very end: for minutes ext4 looks at each inode that was freed before it gives out another
    // (`recently_deleted`), and builds would be measured by what was removed before them.
    const dir = mkdtempSync(join(work, 'hand-'));
    const figure = await measured(cpu, () => byHand(project, first.archive, dir, proxy));
    await settled(home);
    return figure;
  };
  // Whoever comes first waits for the mirror.
  await ours('nobody', first);
  const figures = [];
  for (let round = 0; round < rounds; round++) {
    const app = `${project.name}-${round}`;
    const figure = {};
    const steps = [
      ['hand', hand],
      ['cold', () => ours(app, first)],
    ];
    for (const [name, step] of round % 2 === 0 ? steps : steps.reverse()) figure[name] = await step();
    figure.warm = await ours(app, changed);
    figures.push(figure);
  }
  await drivers.builds.caches.remove({ account_id: 'bench', app_id: 'nobody' });
  const of = (name, key) => median(figures.map((figure) => figure[name][key]));
  const text = (name) => `${of(name, 'seconds').toFixed(1)} (${of(name, 'cpu').toFixed(1)})`;
  const over = (key) => median(figures.map(({ cold, hand: by }) => cold[key] / by[key] - 1));
  const faster = (key) => median(figures.map(({ cold, warm }) => cold[key] / warm[key]));
  const percent = (value) => `${(100 * value).toFixed(0)} %`;
  const overhead = (key) => (over(key) <= 0.1 ? 'met' : 'missed');
  const speed = (key) => (faster(key) >= 3 ? 'met' : 'missed');
  return [
    `${project.name} (${rounds})`,
    text('hand'),
    text('cold'),
    `${percent(over('seconds'))} (${percent(over('cpu'))})`,
    `≤ 10 %: ${overhead('seconds')} (${overhead('cpu')})`,
    text('warm'),
    `${faster('seconds').toFixed(1)} (${faster('cpu').toFixed(1)})`,
    `≥ 3: ${speed('seconds')} (${speed('cpu')})`,
  ];
}

async function packed(dir) {
  const { stream, digest } = await packFolder(dir, { ignoreRules: 'none' });
  return { archive: await buffer(stream), source: await digest };
}

function lock(dir) {
  execFileSync('npm', ['install', '--package-lock-only', '--no-audit', '--no-fund'], {
    cwd: dir,
    stdio: 'ignore',
  });
  const file = join(dir, 'package-lock.json');
  const text = JSON.parse(readFileSync(file, 'utf8'));
  const names = Object.keys(text.packages);
  // A mirror may lack packages for other systems; npm leaves them out of the lock file and then misses them in it.
  for (const { optionalDependencies: optional = {} } of Object.values(text.packages))
    for (const name of Object.keys(optional))
      if (!names.some((path) => path.endsWith(`node_modules/${name}`))) delete optional[name];
  writeFileSync(file, JSON.stringify(text, null, 2));
}

async function build(driver, app, { source, archive }) {
  const lines = [];
  const log = { line: (line) => lines.push(line), full: false, drained: async () => undefined };
  const put = async (_blob, stream) => void (await buffer(stream));
  const blobs = { get: async () => Readable.from([archive]), put };
  const nothing = ['framework', 'nodejs_version', 'root_directory', 'install_command', 'build_command'];
  const spec = {
    ...{ account_id: 'bench', app_id: app, app_type: 'frontend', source, env: [], log_stream: app },
    ...Object.fromEntries([...nothing, 'start_command', 'output_directory'].map((name) => [name, null])),
  };
  const signal = new AbortController().signal;
  const outcome = await driver.build(app, spec, { log, blobs, signal });
  if (outcome.state !== 'success')
    throw new Error(`${app}: ${outcome.reason}\n${lines.slice(-30).join('\n')}`);
}

/** As a person would: a fresh folder, a fresh home, nothing cached. */
async function byHand({ hand, output }, archive, dir, proxy) {
  const src = join(dir, 'src');
  for (const folder of [src, join(dir, 'home'), join(dir, 'tmp')]) mkdirSync(folder, { recursive: true });
  writeFileSync(join(dir, 'source.tgz'), archive);
  const ways = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy', 'npm_config_proxy'];
  const env = {
    ...process.env,
    ...Object.fromEntries([...ways, 'npm_config_https_proxy'].map((name) => [name, proxy])),
    ...{ NO_PROXY: 'localhost,127.0.0.1', no_proxy: 'localhost,127.0.0.1', NEXT_TELEMETRY_DISABLED: '1' },
    ...{ NODE_USE_ENV_PROXY: '1', FORCE_COLOR: '1' },
    HOME: join(dir, 'home'),
    // npm, TypeScript and Vite keep compiled code there.
    TMPDIR: join(dir, 'tmp'),
    CI: '1',
    GOCACHE: join(dir, 'go'),
    npm_config_cache: join(dir, 'npm'),
  };
  const run = (argv, cwd) =>
    new Promise((resolve, reject) => {
      const child = spawn(argv[0], argv.slice(1), { cwd, env, stdio: ['ignore', 'ignore', 'pipe'] });
      const errors = [];
      child.stderr.on('data', (chunk) => errors.push(chunk));
      child.once('error', reject);
      child.once('exit', (code) =>
        code === 0
          ? resolve()
          : reject(new Error(`${argv.join(' ')}: ${Buffer.concat(errors).toString().slice(-2_000)}`)),
      );
    });
  await run(['tar', '-xzf', join(dir, 'source.tgz'), '-C', src], dir);
  await run(['sh', '-c', hand], src);
  await run(['tar', '-czf', join(dir, 'artifact.tgz'), '-C', join(src, output), '.'], dir);
}

/**
 * Nothing of what was measured before is still being removed, written, or told to the disk (a file system that discards what was
 * freed does so for seconds afterwards): it would be counted with what comes next.
 */
async function settled(home) {
  const trash = join(home, 'trash');
  while (existsSync(trash) && readdirSync(trash).length > 0) await sleep(20);
  execFileSync('sync');
  const until = Date.now() + 60_000;
  for (let before = ''; Date.now() < until; await sleep(700)) {
    const now = existsSync('/proc/diskstats') ? readFileSync('/proc/diskstats', 'latin1') : '';
    if (now === before) return;
    before = now;
  }
}

/** Part of the processors' time that a host of virtual machines gave to others since. Where it is much, the figures say little. */
function stolenTime() {
  const read = () =>
    readFileSync('/proc/stat', 'latin1').split('\n', 1)[0].trim().split(/ +/).slice(1, 9).map(Number);
  const sum = (ticks) => ticks.reduce((all, one) => all + one, 0);
  const began = read();
  return () => {
    const now = read();
    return (now[7] - began[7]) / Math.max(1, sum(now) - sum(began));
  };
}

/** Wall and processor seconds of some work with all its children. */
async function measured(cpu, work) {
  const [began, before] = [performance.now(), cpu()];
  await work();
  return { seconds: (performance.now() - began) / 1000, cpu: cpu() - before };
}

/**
 * Counts processor time of this process and everything below it, and of the agent's sandboxes, which have groups of their own: by a group
 * for the former (version 1), or what the kernel says of children (version 2).
 */
function cpuMeter(tag) {
  const usage = (folder) => {
    const file = `${folder}/cpuacct.usage`;
    return existsSync(file) ? Number(readFileSync(file, 'utf8')) / 1e9 : 0;
  };
  for (const name of ['cpuacct', 'cpu,cpuacct'])
    try {
      const root = `/sys/fs/cgroup/${name}`;
      const group = `${root}/nebo-bench-${process.pid}`;
      mkdirSync(group);
      writeFileSync(join(group, 'cgroup.procs'), String(process.pid));
      return () => usage(group) + usage(`${root}/nebo-${tag}`);
    } catch {
      // Another place, or version 2.
    }
  return () => {
    const text = readFileSync('/proc/self/stat', 'latin1');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const own = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
    const file = `/sys/fs/cgroup/nebo-${tag}/cpu.stat`;
    const group = existsSync(file) ? /^usage_usec (\d+)/m.exec(readFileSync(file, 'utf8')) : null;
    return own + Number(group?.[1] ?? 0) / 1e6;
  };
}
