/**
 * `npm run proof -- NAME… [--size N]`: the suites that prove something by number, at the size of the bars, not at that of
 * `npm test`. One number, NEBO_PROOF, sizes a suite; NEBO_SEED makes it another run. Appends what was shown to
 * docs/proof.md, failures included.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { nodeBinary, root } from '../start/node-binary.mjs';

/** Each proof: folder of the project, its specs, the size of the bar, and what a pass shows at a size. */
const proofs = {
  money: {
    project: 'apps/identity-billing',
    specs: ['src/ledger/money.model.spec.ts', 'src/ledger/money.kill.spec.ts'],
    size: 1_000,
    shown: (n) =>
      `${n} random sequences of 14 operations equal a model in memory; ${kills(n)} rounds of kill -9 of spenders and of PostgreSQL lose nothing acknowledged; lines sum to zero`,
  },
  slices: {
    project: 'apps/identity-billing',
    specs: ['src/slices/slices.races.spec.ts', 'src/slices/slices.kill.spec.ts', 'src/slices/recall.spec.ts'],
    size: 400,
    shown: (n) =>
      `${n} random sequences of 16 operations of three routers equal a model in memory; ${Math.max(2, Math.floor(n / 100))} rounds of kill -9 of routers and of PostgreSQL charge every settlement once and give all money back; money for K requests over three routers admits K`,
  },
  routing: {
    project: 'libs/routing',
    specs: ['src/reference.spec.ts'],
    size: 10_000,
    shown: (n) =>
      `${n} pairs of random rules and requests: the same redirects, headers and rewrites as the reference compiler of these files, no unexplained difference`,
  },
  answers: {
    project: 'libs/http1',
    specs: ['src/llhttp.spec.ts'],
    size: 100_000,
    shown: (n) =>
      `${n} answers of HTTP/1.1, two thirds of them mutated, in random pieces: nothing is taken that llhttp refuses, what both take is the same octet by octet, and where more is refused it is for a named reason`,
  },
  inference: {
    project: 'apps/inference-router',
    specs: [
      'src/money/purse.model.spec.ts',
      'src/money/overspend.spec.ts',
      'src/money/settlements.kill.spec.ts',
    ],
    size: 1_000,
    shown: (n) =>
      `${n} random histories of 3 routers never promise money twice and lose no settlement; of ${n} parallel requests with money for K none too many and at least 95 % of K are admitted; ${Math.max(3, Math.floor(n / 20))} times kill -9 of a router under streams: no answer whose last byte came is missing, none charged twice, nothing leased`,
  },
  'inference-services': {
    project: 'e2e',
    specs: ['src/inference-money.spec.ts'],
    size: 1_000,
    shown: (n) =>
      `the same between the real services, each a process: ${n} parallel requests on 3 routers; ${Math.max(3, Math.floor(n / 20))} times kill -9 of a router, every third time with identity-billing, every third with PostgreSQL; the ledger reconciles`,
  },
  region: {
    project: 'e2e',
    specs: ['src/region.model.spec.ts'],
    size: 10_000,
    shown: (n) =>
      `${n} random operations of 6 accounts on machines, backups, networks, gateways, reserved and floating IPs through the public door, with ${Math.floor(n / 100)} times kill -9 of compute, networking or the agent: every answer is one that a model allows, 5xx only from what was killed, what was written is read, the audit of services, billing and region is empty, each balance is what was paid in less what was charged`,
  },
  'cloud-image': {
    project: 'e2e',
    specs: ['src/cloud-image.spec.ts'],
    size: 3,
    shown: (n) =>
      `a whole Debian made by \`npm run cloud-image\`, offered by the operator and ordered through the public door: booted by firmware and GRUB, its seed taken by cloud-init, logged in to over a floating IP with the user's key, backed up while the guest agent that Debian ships holds the disk, ${n} times stopped (the system ends by itself) and started; the audit is empty after its end`,
  },
  archive: {
    project: 'libs/archive',
    specs: ['test/hostile.spec.ts', 'test/valid.spec.ts'],
    size: 40,
    shown: (n) =>
      `every family of hostile archives × ${n} mutations is refused by the right rule and leaves no file; valid ones come out byte for byte`,
  },
  'app-networks': {
    project: 'e2e',
    specs: ['src/app-networks.spec.ts'],
    size: 100,
    shown: (n) =>
      `${n} changes of an app's private network at 200 requests a second, in one process and in the split form, with two replicas and on demand: no request fails, every replica ends in the network that was named last, no port, address or charge is left`,
  },
  'cold-starts': {
    project: 'e2e',
    specs: ['src/cold-starts.spec.ts'],
    size: 1_000,
    shown: (n) =>
      `${n} cold starts of apps on demand with bursts of 1 to 50 requests (GET, HEAD, bodies, server-sent events, WebSockets), fewer in the split form: every request served whole, one start a burst; streams keep an app awake; deploys and changes of \`replica_count\` while it sleeps lose nothing`,
  },
  deploys: {
    project: 'e2e',
    specs: ['src/deploys-under-load.spec.ts'],
    size: 100,
    shown: (n) =>
      `${n} changes (deploys, variables, sizes, counts, versions that never become ready) under ${n > 5 ? 200 : 50} requests a second, a fifth as many in the split form: no request fails, none is answered by a version that was never ready or by an older one than before, streams and WebSockets end after their drain time with a word`,
  },
  usage: {
    project: 'e2e',
    specs: ['src/usage.spec.ts'],
    size: 50,
    shown: (n) =>
      `${n} times kill -9 of the whole installation while an app on demand works: what it worked in peace is measured and charged, never more than the time that passed, the ledger is what usage says, the audit finds nothing`,
  },
  'edge-changes': {
    project: 'apps/edge',
    specs: ['src/routes/changes.spec.ts'],
    size: 1_000,
    shown: (n) =>
      `${n} changes of a route between files and apps while visitors ask without a pause over HTTP/1.1 and HTTP/2: no request dropped, each answered whole by a version that was live meanwhile`,
  },
  lifecycle: {
    project: 'libs/lifecycle',
    specs: ['src/processes.spec.ts', 'src/races.spec.ts'],
    size: 400,
    shown: (n) =>
      `${Math.ceil(n / 20) * 20} late writes of workers that slept over their lease are refused; ${Math.max(1, Math.floor(n / 100))} workers killed in mid step are followed within 3.5 s; no step runs twice at once, no wake is lost`,
  },
  outbox: {
    project: 'libs/bus',
    specs: ['src/outbox-kill.spec.ts', 'src/outbox-relay.spec.ts'],
    size: 40,
    shown: (n) =>
      `${n} times kill -9 of writer, relay and consumer, on the embedded bus and on NATS: 0 events lost, doubled or invented`,
  },
  dns: {
    project: 'apps/dns',
    specs: [
      'src/drivers/builtin/knot.spec.ts',
      'src/drivers/builtin/mutated.spec.ts',
      'src/publisher/publisher.spec.ts',
    ],
    size: 10_000,
    shown: (n) =>
      `the name server answers as knot does over ${n} random zones, 40 questions each, UDP and TCP, any size; ${100 * n} mutated packets get a correct answer or none; 32 writers on one zone make no duplicate and lose no change, its serial grows by one for each`,
  },
  cgroups: {
    project: 'apps/region-agent',
    specs: ['test/cgroup-v2.spec.ts'],
    size: 1,
    shown: () =>
      `a Linux of its own with control groups of version 2 alone: memory, processes and processor time of a run are bounded and the broken limit is told, a group that somebody else made is bounded by a process of it, all that ran in a group ends with it, and the same inside a container whose own group has the agent in it`,
  },
  fixtures: {
    project: 'apps/region-agent',
    specs: ['test/fixtures.spec.ts'],
    size: 1,
    table: 'Fixtures',
    shown: () =>
      `sources of every kind that is promised are built in the sandbox, started, and asked for their page (the table "Fixtures" below)`,
  },
  attack: {
    project: 'e2e',
    specs: ['src/attack.spec.ts', 'src/attack-races.spec.ts'],
    size: 50,
    shown: (n) =>
      `${n} Idempotency-Keys × 20 duplicates with clients that leave make ${n} things with byte-identical repeats; ${n} deletions of projects against creations leave no orphan; ${4 * n} completions at once never overspend; ${30 * n} idle streams; foreign ids, policies, wire, doors and secrets in full`,
  },
};
const kills = (n) => Math.max(3, Math.floor(n / 100));
const file = join(root, 'docs/proof.md');
const head = `# What was proved, and when

\`npm run proof -- NAME\` adds a line (${Object.keys(proofs).join(', ')}, or \`all\`); \`npm test\` runs the same suites at a smaller size.

| proof | size | what was shown | tests | duration | date | commit | result |
| ----- | ---- | -------------- | ----- | -------- | ---- | ------ | ------ |
`;

/** @returns {{ names: string[], size: number | null }} or ends the process with what is wrong */
function readWords(words) {
  const at = words.indexOf('--size');
  const given = at >= 0 ? words.splice(at, 2)[1] : process.env.NEBO_PROOF;
  const size = given === undefined || given === '' ? null : Number(given);
  const names = words.includes('all') ? Object.keys(proofs) : words;
  const unknown = names.find((name) => !Object.hasOwn(proofs, name));
  const wrong =
    unknown !== undefined
      ? `there is no proof "${unknown}"`
      : names.length === 0
        ? 'a name is needed'
        : size !== null && !(Number.isInteger(size) && size > 0)
          ? `the size must be a whole number above zero, not "${given}"`
          : null;
  if (wrong) {
    console.error(`proof: ${wrong}\nnpm run proof -- ${Object.keys(proofs).join('|')}|all [--size N]`);
    process.exit(2);
  }
  return { names, size };
}

/** Runs the specs of a proof. @returns {Promise<object | null>} Jest's report; null when there is none */
async function runJest({ project, specs }, size) {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-proof-'));
  const tableFile = join(folder, 'table.md');
  const report = join(folder, 'report.json');
  const jest = join(root, 'node_modules/jest/bin/jest.js');
  // The results of `npm test` stay as they are: only the default reporter. One file at a time: nothing disturbs a kill.
  const args = ['--runInBand', '--reporters=default', '--json', `--outputFile=${report}`, ...specs];
  const child = spawn(nodeBinary(), ['--experimental-vm-modules', jest, ...args], {
    cwd: join(root, project),
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, NEBO_PROOF: `${size}`, NEBO_PROOF_TABLE: tableFile, NODE_NO_WARNINGS: '1' },
  });
  for (const signal of ['SIGTERM', 'SIGHUP']) process.once(signal, () => child.kill(signal));
  await new Promise((resolve) => child.once('close', resolve));
  const result = existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : null;
  const table = existsSync(tableFile) ? readFileSync(tableFile, 'utf8') : null;
  rmSync(folder, { recursive: true });
  return result && { ...result, table };
}

/** The commit of the tree, and whether the tree is just that. */
function commitWords() {
  const git = (...args) => execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
  try {
    return `${git('rev-parse', '--short', 'HEAD')}${git('status', '--porcelain') === '' ? '' : ' + changes'}`;
  } catch {
    return 'no git';
  }
}

const cell = (text) => String(text).replaceAll('|', '/').replaceAll('\n', ' ');

async function append(cells) {
  const text = existsSync(file) ? readFileSync(file, 'utf8') : head;
  const line = `| ${cells.map(cell).join(' | ')} |\n`;
  // Behind the last row; tables of single proofs follow it.
  const at = text.indexOf('\n## ');
  const [rows, rest] = at < 0 ? [text, ''] : [`${text.slice(0, at).trimEnd()}\n`, text.slice(at)];
  await write(rows + line + rest);
}

/** The newest table of a proof takes the place of the one before. */
async function appendTable(title, facts, table) {
  const text = readFileSync(file, 'utf8');
  const at = text.indexOf(`\n## ${title}\n`);
  const next = at < 0 ? -1 : text.indexOf('\n## ', at + 1);
  const before = at < 0 ? text : text.slice(0, at) + (next < 0 ? '' : text.slice(next));
  await write(`${before.trimEnd()}\n\n## ${title}\n\n${facts}\n\n${table}`);
}

async function write(text) {
  const options = await resolveConfig(file);
  writeFileSync(file, await format(text, { ...options, parser: 'markdown' }));
}

const { names, size: asked } = readWords(process.argv.slice(2));
let failed = false;
for (const name of names) {
  const proof = proofs[name];
  const size = asked ?? proof.size;
  console.error(`\n=== ${name}, size ${size}`);
  const begun = Date.now();
  const commit = commitWords();
  const report = await runJest(proof, size);
  const tests = report?.testResults.flatMap((spec) => spec.assertionResults) ?? [];
  const count = (status) => tests.filter((test) => test.status === status).length;
  const broken = tests.filter((test) => test.status === 'failed').map((test) => test.fullName);
  const skipped = tests.filter((test) => test.status === 'pending').map((test) => test.fullName);
  const passed = report?.success === true && count('passed') > 0;
  if (!passed) failed = true;
  const seconds = Math.round((Date.now() - begun) / 1000);
  const shown = passed
    ? `${proof.shown(size)}${skipped.length > 0 ? `; not shown, skipped: ${skipped.join('; ')}` : ''}`
    : `failed: ${broken.join('; ') || 'a suite did not run'}`;
  const counts = `${count('passed')} of ${tests.length}`;
  const date = new Date(begun).toISOString().slice(0, 10);
  await append([name, size, shown, counts, `${seconds} s`, date, commit, passed ? 'pass' : 'FAIL']);
  if (proof.table && report?.table) await appendTable(proof.table, `${date}, ${commit}`, report.table);
  console.log(`${name}: ${passed ? 'pass' : 'FAIL'}, ${counts} tests, ${seconds} s: ${shown}`);
}
console.error(`\nThe lines are in docs/proof.md.`);
process.exit(failed ? 1 : 0);
