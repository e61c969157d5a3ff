import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { type MachineSpec } from '@nebo/contracts';
import { isSame, signal, startTime } from '../../../system/processes.js';
import { sleep } from '../../../system/timing.js';
import { enterGroups } from '../bwrap.js';
import { tool } from '../exec.js';
import { type KeptMachine, type MachinePaths } from './machine-folder.js';

export type Accelerator = 'kvm' | 'tcg';

export interface QemuVersion {
  major: number;
  minor: number;
}

/** Of the QEMU that is installed. @throws Error when it says none */
export async function qemuVersion(): Promise<QemuVersion> {
  const text = await tool(['qemu-system-x86_64', '-version']);
  const [, major, minor] = /version (\d+)\.(\d+)/.exec(text) ?? [];
  if (major === undefined || minor === undefined) throw new Error('QEMU does not say its version');
  return { major: Number(major), minor: Number(minor) };
}

/** A folder as the whole file system, and a user: the options for them changed with QEMU 9.0 and 9.1. */
export function confinement({ major, minor }: QemuVersion, jail: string, uid: number): string[] {
  const [folder, user] = [jail.replaceAll(',', ',,'), `${uid}:${uid}`];
  if (major < 9) return ['-chroot', jail, '-runas', user];
  if (major === 9 && minor === 0) return ['-run-with', `chroot=${folder}`, '-runas', user];
  return ['-run-with', `chroot=${folder},user=${user}`];
}

export interface QemuStart {
  /** `-name`: by it the process is found again. */
  name: string;
  kept: KeptMachine;
  spec: MachineSpec;
  paths: MachinePaths;
  accelerator: Accelerator;
  version: QemuVersion;
  /** Files of the image store. */
  file(sha256: string): string;
  /** Null: a network of its own without any link. */
  namespace: string | null;
  /** In the order of the interfaces. */
  taps: readonly string[];
  /** Files that take a pid, of the limits group; none without cgroups. */
  groups: readonly string[];
}

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * QEMU's arguments. It begins as root, opens what it needs (disk, tap, sockets), then confines itself: a folder of its own as
 * the whole file system, a user that nobody else is, no new programs. Started stopped (-S), so that nothing of the first
 * words on the serial line is lost.
 */
export function qemuArguments(start: QemuStart): string[] {
  const { kept, spec, paths, accelerator, file, taps } = start;
  const socket = (id: string, at: string) => ['-chardev', `socket,id=${id},path=${at},server=on,wait=off`];
  const block = (options: Record<string, unknown>) => ['-blockdev', JSON.stringify(options)];
  const boot = kept.image.boot;
  return [
    ...[
      '-name',
      start.name,
      '-nodefaults',
      '-no-user-config',
      '-display',
      'none',
      '-S',
      '-msg',
      'timestamp=on',
    ],
    ...['-sandbox', 'on,obsolete=deny,spawn=deny,resourcecontrol=deny'],
    ...confinement(start.version, paths.jail, kept.uid),
    ...['-M', 'q35', '-rtc', 'base=utc', '-m', `${kept.memory_mb}M`, '-smp', `${kept.vcpu}`],
    // Without a bound the translated code alone may take as much memory as the guest.
    ...(accelerator === 'kvm'
      ? ['-accel', 'kvm', '-cpu', 'host']
      : ['-accel', 'tcg,thread=multi,tb-size=64', '-cpu', 'Nehalem']),
    ...socket('monitor', paths.monitor),
    ...['-mon', 'chardev=monitor,mode=control'],
    ...socket('jobs', paths.jobs),
    ...['-mon', 'chardev=jobs,mode=control'],
    ...socket('console', paths.console),
    ...['-serial', 'chardev:console'],
    ...socket('agent', paths.agent),
    ...[
      '-device',
      'virtio-serial-pci',
      '-device',
      'virtserialport,chardev=agent,name=org.qemu.guest_agent.0',
    ],
    ...['-object', 'rng-random,id=random,filename=/dev/urandom', '-device', 'virtio-rng-pci,rng=random'],
    ...block({ driver: 'file', 'node-name': 'disk-file', filename: paths.disk, discard: 'unmap' }),
    ...block({ driver: 'qcow2', 'node-name': 'disk', file: 'disk-file', discard: 'unmap' }),
    ...['-device', 'virtio-blk-pci,drive=disk,bootindex=1,write-cache=on'],
    ...block({ driver: 'file', 'node-name': 'seed-file', filename: paths.seed, 'read-only': true }),
    ...block({ driver: 'raw', 'node-name': 'seed', file: 'seed-file', 'read-only': true }),
    ...['-device', 'virtio-blk-pci,drive=seed'],
    ...taps.flatMap((tap, index) => [
      ...['-netdev', `tap,id=net${index},ifname=${tap},script=no,downscript=no,vhost=off`],
      ...['-device', `virtio-net-pci,netdev=net${index},mac=${spec.interfaces[index]!.mac},romfile=`],
    ]),
    ...(boot ? ['-kernel', file(boot.kernel), '-initrd', file(boot.initrd), '-append', boot.append] : []),
  ];
}

/** Capabilities that the way to a confined QEMU needs; it keeps none of them. */
const needed =
  '-all,+setuid,+setgid,+sys_chroot,+net_admin,+sys_admin,+dac_override,+chown,+fowner,+ipc_lock';

/**
 * Starts it as a process that goes on without this one.
 * @returns its pid and when it began, once it has become QEMU
 * @throws Error with QEMU's words when it ends at once
 */
export async function startQemu(start: QemuStart): Promise<{ pid: number; start: string }> {
  const { namespace, groups, paths } = start;
  const argv = [
    ...['sh', '-c', enterGroups, 'nebo-vm'],
    ...(namespace === null ? ['unshare', '--net'] : ['ip', 'netns', 'exec', namespace]),
    ...['setpriv', '--no-new-privs', '--bounding-set', needed, '--inh-caps', '-all'],
    ...['qemu-system-x86_64', ...qemuArguments(start)],
  ];
  const log = openSync(paths.log, 'w', 0o600);
  try {
    const child = spawn(argv[0]!, argv.slice(1), {
      stdio: ['ignore', log, log],
      detached: true,
      cwd: '/',
      env: { PATH: path, NEBO_GROUPS: groups.join(' ') },
    });
    child.on('error', () => undefined);
    child.unref();
    const { pid } = child;
    const began = pid === undefined ? null : startTime(pid);
    if (pid === undefined || began === null) throw new Error(`QEMU did not start: ${await words(paths.log)}`);
    return { pid, start: began };
  } finally {
    closeSync(log);
  }
}

/** What QEMU itself said last, for an error. */
export async function words(log: string): Promise<string> {
  const text = await readFile(log, 'utf8').catch(() => '');
  return text.trim().split('\n').slice(-3).join(' ').slice(0, 500) || 'it said nothing';
}

/** Pids of every QEMU of this agent by its machine's id, also of those that nobody wrote down. */
export async function findQemus(prefix: string): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const look = async (pid: string) => {
    const args = (await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')).split('\0');
    const name = args[args.indexOf('-name') + 1] ?? '';
    if (!args.some((arg) => arg.endsWith('qemu-system-x86_64')) || !name.startsWith(prefix)) return;
    const id = name.slice(prefix.length);
    found.set(id, [...(found.get(id) ?? []), Number(pid)]);
  };
  for (let at = 0; at < pids.length; at += 64) await Promise.all(pids.slice(at, at + 64).map(look));
  return found;
}

/** Kills a process and waits until it is gone. @throws Error when it is not within 10 s */
export async function killed(pid: number): Promise<void> {
  const began = startTime(pid);
  signal(pid, 'SIGKILL');
  for (const until = Date.now() + 10_000; isSame(pid, began); await sleep(10))
    if (Date.now() > until) throw new Error(`process ${pid} does not end`);
}
