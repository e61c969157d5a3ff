/**
 * Runs as a program in a machine whose kernel has groups of version 2 only (test/cgroup-v2.spec.ts): what the agent sets is what the
 * kernel does. Prints a line for each check.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cgroups, findHierarchy, type Group } from '../../src/drivers/local/cgroups.js';

const root = '/sys/fs/cgroup';
const limits = { memoryBytes: 48 * 2 ** 20, cpus: 0.25, processes: 12 };

function check(name: string, found: unknown, wanted: unknown): void {
  const [is, want] = [JSON.stringify(found), JSON.stringify(wanted)];
  console.log(`check ${is === want ? 'ok' : 'FAILED'}: ${name}${is === want ? '' : `: ${is}, not ${want}`}`);
}

/** A shell that moves itself into the group before it does anything. */
function inside(group: Group, script: string): ChildProcess {
  const moves = group.procsFiles.map((file) => `echo $$ > ${file}`).join(' && ');
  return spawn('/bin/sh', ['-c', `${moves} && ${script}`], { stdio: 'ignore' });
}
const codeOf = async (child: ChildProcess) => ((await once(child, 'exit')) as [number | null])[0];
const pidsIn = (folder: string) =>
  readFileSync(join(folder, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);

async function open(tag: string): Promise<Cgroups> {
  const hierarchy = await findHierarchy(readFileSync('/proc/self/mounts', 'utf8'));
  check('the hierarchy is one of version 2', hierarchy?.version, 2);
  return new Cgroups(hierarchy!, tag);
}

async function asOnAHost(): Promise<void> {
  const groups = await open('host');
  const memory = await groups.create('memory', limits);
  // Both the block that is read into and its pages are the program's own.
  const big = await codeOf(inside(memory, 'exec dd if=/dev/zero of=/dev/null bs=120M count=1'));
  check('a program that takes too much memory does not end well', big === 0, false);
  check('… and that is why', await memory.outOfMemory(), true);
  check('… not for want of processes', await memory.outOfProcesses(), false);

  const many = await groups.create('many', limits);
  inside(many, 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 600 & done; sleep 600');
  for (let turn = 0; turn < 100 && !(await many.outOfProcesses()); turn += 1) await sleep(100);
  check('more processes than allowed are refused', await many.outOfProcesses(), true);
  const there = (await groups.processes('many')).length;
  check('as many as allowed are there', there > 0 && there <= limits.processes, true);

  const busy = await groups.create('busy', { ...limits, processes: 50 });
  const child = inside(busy, 'while :; do :; done');
  await sleep(4_000);
  const used = (await busy.cpuMicroseconds()) ?? -1;
  check('a quarter of a processor is what it gets', used > 200_000 && used < 2_000_000, true);
  const membership = readFileSync(`/proc/${child.pid}/cgroup`, 'utf8');
  check(
    'a group is bounded by one of its processes',
    await groups.limitProcesses(membership, 'busy', 7),
    true,
  );
  check('… which the kernel keeps', readFileSync(`${root}/nebo-host/busy/pids.max`, 'utf8').trim(), '7');
  check('… and by no other name', await groups.limitProcesses(membership, 'other', 5), false);

  // As an engine does with the group that it was given.
  mkdirSync(`${root}/nebo-host/busy/below`);
  check('names', (await groups.names()).sort(), ['busy', 'many', 'memory']);
  for (const group of [memory, many]) await group.remove();
  check('what was in a group has ended with it', await groups.processes('many'), []);
  check('what is gone is not there', readdirSync(`${root}/nebo-host`).includes('many'), false);
  child.kill('SIGKILL');
  await groups.cleanUp();
}

/** The root of a container's view is an ordinary group, with the agent itself in it. */
async function asInAContainer(): Promise<void> {
  const before = pidsIn(root);
  check('it is in the root that it sees', before.includes(process.pid), true);
  const groups = await open('pod');
  const group = await groups.create('run', limits);
  check('what ran in the root has moved beside', pidsIn(root), []);
  check('… all of it', pidsIn(`${root}/nebo-host`).includes(process.pid), true);
  const big = await codeOf(inside(group, 'exec dd if=/dev/zero of=/dev/null bs=120M count=1'));
  check('limits hold', [big === 0, await group.outOfMemory()], [false, true]);
  await group.remove();
  await groups.create('again', limits);
  await groups.cleanUp();
  check(
    'nothing is left',
    readdirSync(root).filter((name) => name.startsWith('nebo-pod')),
    [],
  );
}

if (process.argv[2] === 'container') await asInAContainer();
else {
  await asOnAHost();
  // What a container engine does for a container with groups of its own.
  for (const folder of [root]) writeFileSync(join(folder, 'cgroup.subtree_control'), '+cpu +memory +pids');
  mkdirSync(`${root}/pod`);
  const script = [
    `echo $$ > ${root}/pod/cgroup.procs`,
    `exec /bin/unshare --cgroup --mount sh -c 'umount ${root} && mount -t cgroup2 none ${root} && exec "$0" "$1" container' "$0" "$1"`,
  ].join(' && ');
  const child = spawn('/bin/sh', ['-c', script, process.execPath, process.argv[1]!], { stdio: 'inherit' });
  check('the container ended well', await codeOf(child), 0);
}
console.log('check end');
