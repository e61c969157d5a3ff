/**
 * `npm run bench -- dns`: answers per second and CPU per answer of the built-in name server against knot and PowerDNS where
 * they are installed, one worker each, on one core, the load (dnsperf) on the other; rounds of all in turn. And how long a
 * record takes from its POST to an answer, in a whole installation.
 */
import { execFile, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { decode, encode } from 'dns-packet';
import { cpuSeconds, end, freePort, median, startInstallation } from '../src/installation.mjs';
import { knot, pinned, powerdns } from './peers.mjs';

const run = promisify(execFile);
const dnsperf = '/usr/bin/dnsperf';
const zone = 'bench.test.';
const count = 1_100;
const records = 300;

/** @param {{ size?: number }} [options] rounds of two seconds; 1 is the quick form */
export async function benchDns({ size = 5 } = {}) {
  const lines = [...(await answers(size)), '', ...(await visible())];
  return lines.join('\n');
}

async function answers(rounds) {
  if (!existsSync(dnsperf)) return ['dnsperf is not installed: no answers per second were measured.'];
  const [before] = loadavg();
  const folder = mkdtempSync(join(tmpdir(), 'nebo-bench-dns-'));
  const names = Array.from({ length: count }, (_, index) => [
    `host${index}.${zone}`,
    `192.0.2.${index % 256}`,
  ]);
  const file = join(folder, 'zone');
  const json = join(folder, 'names.json');
  const queries = join(folder, 'queries');
  writeFileSync(json, JSON.stringify({ zone, names }));
  writeFileSync(
    file,
    [
      `${zone} 3600 IN SOA ns1.${zone} hostmaster.${zone} 1 7200 1800 1209600 300`,
      `${zone} 3600 IN NS ns1.${zone}`,
      ...names.map(([name, address]) => `${name} 300 IN A ${address}`),
      '',
    ].join('\n'),
  );
  // One in ten asks for what is not there.
  const asked = names.map(([name], index) => `${index % 10 === 9 ? `no${name}` : name} A`);
  writeFileSync(queries, `${asked.join('\n')}\n`);
  const server = fileURLToPath(new URL('server.mjs', import.meta.url));
  const makers = {
    'built-in': (port) =>
      spawn(...pinned(0, process.execPath, [server, String(port), json]), {
        stdio: ['ignore', 'ignore', 'inherit'],
      }),
    PowerDNS: (port) => powerdns(folder, port, zone, file),
    knot: (port) => knot(folder, port, zone, file),
  };
  const lanes = [];
  try {
    for (const [name, make] of Object.entries(makers)) {
      const port = await freePort();
      const child = make(port);
      if (!child) console.error(`  ${name} is not installed`);
      else lanes.push({ name, port, child, perSecond: [], microseconds: [], lost: 0 });
    }
    for (const lane of lanes) await untilAnswered(lane.port, names[0][0]);
    // Once to warm what is cached and compiled.
    for (const lane of lanes) await round(lane, queries, 3);
    for (const lane of lanes) Object.assign(lane, { perSecond: [], microseconds: [], lost: 0 });
    for (let index = 0; index < rounds; index += 1) {
      for (const lane of lanes) await round(lane, queries, 2);
    }
  } finally {
    for (const { child } of lanes) await end(child);
    rmSync(folder, { recursive: true, force: true });
  }
  const [ours] = lanes;
  return [
    `Load of the machine before and after: ${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}. ${count} names, one in ten not there, one core each.`,
    '',
    '| server | answers per second, median of rounds | most | ours, times | CPU µs per answer, median | lost | goal |',
    '|---|---|---|---|---|---|---|',
    ...lanes.map((lane) => {
      const times = median(ours.perSecond.map((perSecond, index) => perSecond / lane.perSecond[index]));
      const goal = { PowerDNS: '≥ 0.5', knot: '≥ 0.3' }[lane.name] ?? '';
      return `| ${lane.name} | ${Math.round(median(lane.perSecond))} | ${Math.round(Math.max(...lane.perSecond))} | ${times.toFixed(2)} | ${median(lane.microseconds).toFixed(1)} | ${lane.lost} | ${goal} |`;
    }),
  ];
}

async function round(lane, queries, seconds) {
  const before = cpuSeconds(lane.child.pid);
  const words = [
    '-s',
    '127.0.0.1',
    '-p',
    String(lane.port),
    '-d',
    queries,
    '-l',
    String(seconds),
    '-c',
    '4',
    '-q',
    '200',
  ];
  const { stdout } = await run(...pinned(1, dnsperf, words));
  const number = (what) => Number(new RegExp(`${what}:\\s+([0-9.]+)`).exec(stdout)[1]);
  const completed = number('Queries completed');
  lane.perSecond.push(number('Queries per second'));
  lane.microseconds.push(((cpuSeconds(lane.child.pid) - before) / completed) * 1e6);
  lane.lost += number('Queries lost');
}

async function visible() {
  const one = await startInstallation();
  try {
    const { account_id } = await one.admin('account', 'create', '--name', 'bench dns');
    const { key } = await one.admin('key', 'create', '--account', account_id);
    const post = async (path, body) => {
      const answer = await fetch(`${one.baseUrl}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
      return answer.json();
    };
    const { id } = await post('/dns/zones', { name: 'visible.test' });
    const posted = [];
    const seen = [];
    for (let index = 0; index < records; index += 1) {
      const begun = performance.now();
      await post(`/dns/zones/${id}/dns_records`, { name: `r${index}`, type: 'A', content: '192.0.2.1' });
      posted.push(performance.now() - begun);
      await untilAnswered(Number(one.credentials.dns_address.split(':')[1]), `r${index}.visible.test.`);
      seen.push(performance.now() - begun);
    }
    const at = (values, share) =>
      [...values].sort((a, b) => a - b)[Math.ceil(values.length * share) - 1].toFixed(1);
    return [
      `| ${records} records, one after another, ms | p50 | p99 | most | goal |`,
      '|---|---|---|---|---|',
      `| POST until its 201 | ${at(posted, 0.5)} | ${at(posted, 0.99)} | ${at(posted, 1)} | |`,
      `| POST until it is answered | ${at(seen, 0.5)} | ${at(seen, 0.99)} | ${at(seen, 1)} | p99 ≤ 1000 |`,
    ];
  } finally {
    await one.stop();
    one.remove();
  }
}

/** Asks every two milliseconds until there is an answer with data. */
async function untilAnswered(port, name) {
  const socket = createSocket('udp4');
  const query = encode({ type: 'query', id: 1, questions: [{ type: 'A', name }] });
  try {
    await new Promise((resolve, reject) => {
      const limit = setTimeout(() => reject(new Error(`${name} is not answered at ${port}`)), 15_000);
      const timer = setInterval(() => socket.send(query, port, '127.0.0.1'), 2);
      socket.on('message', (bytes) => {
        if (!decode(bytes).answers.length) return;
        clearInterval(timer);
        clearTimeout(limit);
        resolve();
      });
      socket.on('error', () => undefined);
    });
  } finally {
    socket.close();
  }
}
