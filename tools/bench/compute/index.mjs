/** `npm run bench -- compute`: from intent to active, what a machine costs among many, and lists of many. */
import { loadavg } from 'node:os';
import { median } from '../inference/measure.mjs';
import { pause, quantile } from '../inference/parts.mjs';
import { Counts } from './counts.mjs';
import { createAtRate } from './creations.mjs';
import { fillVms } from './fill.mjs';
import { Lane } from './lane.mjs';
import { measureLists } from './lists.mjs';

const few = 100;
const many = 100_000;
/** Before anything is measured: 400 machines, since each service is a process whose code is compiled as it is used. */
const warmUp = { perSecond: 20, seconds: 20 };
/** Machines of the account whose list is compared with that of `many`. */
const listed = 1_000;

/**
 * @param {{ size?: number, only?: string }} options `size` 1: short rounds; `only`: `creations`, `lists`, `counts` (what one
 *   machine costs by count, at a rate that everybody keeps up with) or `rates` (at which rate they still keep up here)
 * @returns the tables as Markdown
 */
export async function benchCompute({ size = 2, only } = {}) {
  const [before] = loadavg();
  const wants = (part) => !only || part === only;
  const lanes = [];
  if (only === 'counts') return counted(size);
  if (only === 'rates') return rated(size);
  try {
    const big = await Lane.start(many);
    lanes.push(big);
    if (wants('creations')) lanes.unshift(await Lane.start(few));
    const notes = [];
    const parts = [];
    for (const lane of lanes) await quiet(lane);
    if (wants('creations')) parts.push(await creations(lanes, size, notes));
    if (wants('lists')) {
      const account = await smallAccount(big);
      await fillVms(big, account, listed, 16);
      await quiet(big);
      parts.push(await measureLists(big, account, { many, listed, rounds: 20 * size }));
    }
    const load = `Size ${size}; load of the machine before and after: ${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}.`;
    return [load, ...notes, '', parts.join('\n\n')].join('\n');
  } finally {
    for (const lane of lanes) await lane.end();
  }
}

/** Statements, row changes and notifications of one machine, by service. */
async function counted(size) {
  const lane = await Lane.start(few);
  try {
    await createAtRate(lane, warmUp);
    await quiet(lane);
    const plain = await createAtRate(lane, { perSecond: 8, seconds: 5 * size });
    await quiet(lane);
    const counts = await Counts.begin(lane);
    let text;
    const made = async (ids) => (text = await counts.end(ids.length));
    const { ms } = await createAtRate(lane, { perSecond: 8, seconds: 5 * size, made });
    const cpu = Object.entries(plain.cpu).map(
      ([part, used]) => `| ${part} | ${((used / plain.ms.length) * 1_000).toFixed(2)} |`,
    );
    const latency = [0.5, 0.99].map((part) => `${quantile(plain.ms, part).toFixed(0)}`).join(' and ');
    return [
      `Intent to active, p50 and p99 without counting: ${latency} ms; ${ms.length} machines counted.`,
      ['| CPU without counting, of | ms a machine |', '| --- | --- |', ...cpu].join('\n'),
      text,
    ].join('\n\n');
  } finally {
    await lane.end();
  }
}

/** From intent to active at rising rates, and what a machine costs of this host, the generator of the load included. */
async function rated(size) {
  const lane = await Lane.start(few);
  const head = [
    'orders a second',
    'p50, ms',
    'p99, ms',
    'CPU in all, ms a machine',
    'busy cores',
    'load of the host',
  ];
  const rows = [];
  try {
    await createAtRate(lane, warmUp);
    for (const perSecond of [10, 15, 20, 25, 30, 40, 50]) {
      await quiet(lane);
      const own = process.cpuUsage();
      const { ms, cpu, seconds } = await createAtRate(lane, { perSecond, seconds: 5 * size });
      const { user, system } = process.cpuUsage(own);
      const used = (total(cpu) * 1e6 + user + system) / 1e6;
      const figures = [quantile(ms, 0.5).toFixed(0), quantile(ms, 0.99).toFixed(0)];
      const shares = [((used / ms.length) * 1_000).toFixed(1), (used / seconds).toFixed(2)];
      rows.push([perSecond, ...figures, ...shares, loadavg()[0].toFixed(1)]);
    }
    return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  } finally {
    await lane.end();
  }
}

/** After a start the agent compares everything once; measured is what comes after. */
async function quiet(lane) {
  const end = performance.now() + 180_000;
  for (let calm = 0; calm < 2 && performance.now() < end;) {
    const before = total(lane.cpu());
    await pause(2_000);
    const used = (total(lane.cpu()) - before) / 2;
    calm = used < 0.3 ? calm + 1 : 0;
  }
}

const total = (cpu) =>
  Object.entries(cpu)
    .filter(([part]) => !part.startsWith('PostgreSQL of '))
    .reduce((sum, [, used]) => sum + used, 0);

async function smallAccount(lane) {
  const account = await lane.split.admin('account', 'create', '--name', 'few', '--topup', '100000');
  const { key } = await lane.split.admin('key', 'create', '--account', account.account_id);
  return { account_id: account.account_id, project_id: account.project_id, api_key: key };
}

async function creations(lanes, size, notes) {
  const perSecond = 50;
  for (const lane of lanes) await createAtRate(lane, warmUp);
  const results = lanes.map(() => []);
  for (let round = 0; round < (size > 1 ? 5 : 3); round += 1) {
    for (const [index, lane] of lanes.entries()) {
      results[index].push(await createAtRate(lane, { perSecond, seconds: size > 1 ? 10 : 5 }));
      await quiet(lane);
    }
  }
  // What is compared in the background costs with the number of machines, whether anybody orders or not.
  const idle = [];
  for (const lane of lanes) {
    const before = lane.cpu();
    await pause(62_000);
    const after = lane.cpu();
    idle.push(
      Object.fromEntries(Object.keys(after).map((part) => [part, (after[part] - before[part]) / 62])),
    );
  }
  for (const [index, rounds] of results.entries()) {
    const failed = rounds.flatMap((round) => round.failed);
    if (failed.length > 0)
      notes.push(`- ${lanes[index].name}: ${failed.length} orders failed, the first: ${failed[0]}`);
  }
  return creationTables(lanes, results, idle, perSecond);
}

function creationTables(lanes, results, idle, perSecond) {
  const latency = results.map((rounds) => rounds.flatMap(({ ms }) => ms));
  const medianOf = (index, part) =>
    median(results[index].map(({ cpu, ms }) => (cpu[part] / ms.length) * 1_000));
  const rows = [];
  const row = (figure, values, goal = '', verdict = '') =>
    rows.push(`| ${[figure, ...values, goal, verdict].join(' | ')} |`);
  for (const [name, part, goal] of [
    ['p50', 0.5],
    ['p99', 0.99, 1_000],
    ['most', 1],
  ]) {
    const values = latency.map((ms) => quantile(ms, part));
    const met = goal && values.every((value) => value <= goal);
    row(
      `intent to active at ${perSecond} a second, ${name}, ms`,
      values.map((value) => value.toFixed(0)),
      goal ? `≤ ${goal}` : '',
      goal ? (met ? 'met' : 'missed') : '',
    );
  }
  row(
    'orders',
    latency.map((ms) => ms.length),
  );
  const parts = Object.keys(results[0][0].cpu);
  for (const part of parts)
    row(
      `CPU of ${part}, ms a machine`,
      lanes.map((_, index) => medianOf(index, part).toFixed(2)),
    );
  const own = lanes.map((_, index) => medianOf(index, 'compute') + medianOf(index, 'PostgreSQL of compute'));
  row(
    'CPU of compute and its PostgreSQL, ms a machine',
    own.map((value) => value.toFixed(2)),
  );
  const times = own[1] / own[0];
  row('– times the first', ['1.00', times.toFixed(2)], '≤ 1.2 (flat)', times <= 1.2 ? 'met' : 'missed');
  for (const part of ['compute', 'PostgreSQL of compute', 'networking', 'region-agent'])
    row(
      `CPU of ${part} at rest, ms a second`,
      idle.map((used) => (used[part] * 1_000).toFixed(1)),
    );
  const head = ['figure', ...lanes.map(({ name }) => name), 'goal', 'verdict'];
  return [`| ${head.join(' | ')} |`, `| ${head.map(() => '---').join(' | ')} |`, ...rows].join('\n');
}
