import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { chmod, chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EnvEntry } from '@nebo/contracts';
import { startChild } from '../../system/child.js';
import { askToStop, descendants, isSame, signal, startTime } from '../../system/processes.js';
import { type Run } from '../../system/runs.js';
import { settledWithin } from '../../system/timing.js';
import { type Toolchain } from '../../system/toolchain.js';
import { type Exit, type SandboxProcess } from '../sandbox.js';
import { type Group } from './cgroups.js';

/** How a sandboxed process is held. */
export interface EnclosedProcess {
  run: Run;
  /** Namespace made beforehand; null: a new one without any link. */
  network: string | null;
  group: Group | null;
  limits: { processes: number; fileBytes: number; tmpBytes: number };
  onOutput(chunk: Buffer): void;
  paused?: (() => Promise<void> | null) | undefined;
}

/** What one sandboxed process may see and use. */
export interface Enclosure extends EnclosedProcess {
  tools: Toolchain;
  uid: number;
  /** Host folders by the path they have inside. */
  binds: { from: string; to: string; writable: boolean }[];
  cwd: string;
  env: readonly EnvEntry[];
  command: string;
}

const authoritiesInside = '/run/nebo/authorities.pem';
const hostsFile = '127.0.0.1 localhost nebo\n';

/** Constant: moves itself into its groups before it becomes anything else, so that nothing can escape them. */
export const enterGroups =
  'for f in $NEBO_GROUPS; do echo $$ > "$f" || exit 126; done; unset NEBO_GROUPS; exec "$@"';
/** Constant: reads the run's variables (only now, as the unprivileged user) and becomes the user's command. */
const enterCommand = '. /run/nebo/env && cd -- "$2" && exec sh -c "$1"';

/** Variables as a file for `.`: values may hold anything, names that a shell does not know are left out. */
export function envFile(env: readonly EnvEntry[]): string {
  const last = new Map(env.map((entry) => [entry.name, entry.value]));
  return [...last]
    .filter(([name]) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
    .map(([name, value]) => `export ${name}='${value.replaceAll('\0', '').replaceAll("'", "'\\''")}'\n`)
    .join('');
}

/** /bin, /lib and so on: links into /usr on a merged system, folders of their own elsewhere. */
export function systemFolders(): string[] {
  const args = ['--ro-bind', '/usr', '/usr'];
  for (const name of ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32']) {
    if (!existsSync(name)) continue;
    if (lstatSync(name).isSymbolicLink()) args.push('--symlink', readlinkSync(name), name);
    else args.push('--ro-bind', name, name);
  }
  return args;
}

/** Namespaces of its own, and an end with the agent. */
export const isolation = (): string[] => [
  ...['--unshare-ipc', '--unshare-pid', '--unshare-uts', '--unshare-cgroup-try'],
  ...['--die-with-parent', '--new-session', '--hostname', 'nebo', '--clearenv'],
];

/**
 * bubblewrap's arguments. It runs as root without a user namespace, because the agent's home (0700) must be bound; root
 * is left by setpriv inside, before anything of the user's is read. Writable folders have parents that only root can
 * change, so no bind can be led astray.
 */
export function bwrapArgs(of: Enclosure, files: { env: string; passwd: string; hosts: string }): string[] {
  const args = isolation();
  if (of.network === null) args.push('--unshare-net');
  args.push(...systemFolders(), '--proc', '/proc', '--dev', '/dev');
  // bubblewrap makes missing parents 0700, so each is made by name.
  const folder = (path: string) => args.push('--perms', '0755', '--dir', path);
  for (const path of ['/etc', '/etc/ssl', '/home', '/run', '/run/nebo']) folder(path);
  args.push('--ro-bind', files.passwd, '/etc/passwd', '--ro-bind', files.hosts, '/etc/hosts');
  for (const path of [
    '/etc/ssl/certs',
    '/etc/ca-certificates',
    '/etc/alternatives',
    '/etc/ld.so.cache',
    '/etc/localtime',
  ])
    args.push('--ro-bind-try', path, path);
  args.push('--size', String(of.limits.tmpBytes), '--perms', '1777', '--tmpfs', '/tmp');
  args.push('--size', String(of.limits.tmpBytes), '--perms', '1777', '--tmpfs', '/dev/shm');
  // Hides what the host installed by hand, and takes Node without a new folder on the read-only system.
  args.push('--perms', '0755', '--tmpfs', '/usr/local');
  for (const path of ['/usr/local/bin', '/usr/local/lib', '/usr/local/lib/node_modules']) folder(path);
  args.push('--ro-bind', of.tools.node, '/usr/local/bin/node');
  if (of.tools.npm) {
    args.push('--ro-bind', of.tools.npm, '/usr/local/lib/node_modules/npm');
    for (const name of ['npm', 'npx'])
      args.push('--symlink', `../lib/node_modules/npm/bin/${name}-cli.js`, `/usr/local/bin/${name}`);
  }
  args.push('--ro-bind', files.env, '/run/nebo/env');
  if (of.tools.authorities) args.push('--ro-bind', of.tools.authorities, authoritiesInside);
  for (const { from, to, writable } of of.binds) args.push(writable ? '--bind' : '--ro-bind', from, to);
  args.push('--remount-ro', '/', '--chdir', '/');
  args.push('--cap-drop', 'ALL');
  for (const needed of ['CAP_SETUID', 'CAP_SETGID', 'CAP_SETPCAP']) args.push('--cap-add', needed);
  return args;
}

/** Starts a command in a sandbox. */
export async function startEnclosed(of: Enclosure): Promise<SandboxProcess> {
  const { run, uid } = of;
  const files = {
    env: join(run.dir, 'env'),
    passwd: join(run.dir, 'passwd'),
    hosts: join(run.dir, 'hosts'),
  };
  const variables: EnvEntry[] = [
    { name: 'PATH', value: '/usr/local/bin:/usr/bin:/bin', secret: false },
    { name: 'LANG', value: 'C.UTF-8', secret: false },
    { name: 'TMPDIR', value: '/tmp', secret: false },
    { name: 'npm_config_update_notifier', value: 'false', secret: false },
    ...(of.tools.authorities
      ? [{ name: 'NODE_EXTRA_CA_CERTS', value: authoritiesInside, secret: false }]
      : []),
    ...of.env,
  ];
  // Variables hold secrets: the run's user reads them and nobody else, also where their folder were reachable.
  await writeFile(files.env, envFile(variables), { mode: 0o400 });
  await chown(files.env, uid, uid);
  await writeFile(files.passwd, `root:x:0:0::/:/bin/sh\nnebo:x:${uid}:${uid}::/tmp:/bin/sh\n`);
  // Tools look their own loopback up by name (Vite does at every start), and nobody else could answer.
  await writeFile(files.hosts, hostsFile);
  for (const path of [files.passwd, files.hosts]) await chmod(path, 0o644);
  const user = String(uid);
  const inner = [
    'setpriv',
    '--reuid',
    user,
    '--regid',
    user,
    '--clear-groups',
    '--bounding-set=-all',
    '--inh-caps=-all',
    '--ambient-caps=-all',
    '--no-new-privs',
    'sh',
    '-c',
    enterCommand,
    'sh',
    of.command,
    of.cwd,
  ];
  return spawnEnclosed(of, bwrapArgs(of, files), inner);
}

/**
 * Starts bubblewrap and what it encloses.
 * @param args bubblewrap's own
 * @param inner the first program inside, which leaves root
 * @param around what the process becomes before it becomes bubblewrap
 */
export async function spawnEnclosed(
  of: EnclosedProcess,
  args: readonly string[],
  inner: readonly string[],
  around: readonly string[] = [],
): Promise<SandboxProcess> {
  const { run, limits } = of;
  const argv = [
    'sh',
    '-c',
    enterGroups,
    'nebo-run',
    ...(of.network === null ? [] : ['nsenter', `--net=/run/netns/${of.network}`]),
    // The user is this run's alone, so a limit by user bounds it even where there are no cgroups.
    'prlimit',
    `--nproc=${limits.processes}`,
    `--fsize=${limits.fileBytes}`,
    '--core=0',
    ...around,
    'bwrap',
    '--args',
    '3',
    '--',
    ...inner,
  ];
  let start: string | null = null;
  const child = await startChild(argv, {
    cwd: '/',
    env: {
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      NEBO_GROUPS: of.group?.procsFiles.join(' ') ?? '',
    },
    group: true,
    // By descriptor, so that no process list shows the host's paths.
    extraInput: Buffer.from(args.map((arg) => `${arg}\0`).join('')),
    onOutput: of.onOutput,
    paused: of.paused,
    onStart: (pid) => {
      start = startTime(pid);
      run.started(pid, true);
    },
  });
  let over = false;
  const exited: Promise<Exit> = child.exited.then(async (code) => {
    over = true;
    const memory = (await of.group?.outOfMemory()) ?? false;
    const limit = memory && code !== 0 ? 'used more memory than it may' : null;
    return { code, limit };
  });
  return {
    exited,
    stop: async (graceMs) => {
      if (!over && graceMs > 0) {
        // bubblewrap hands no signals on; the processes inside are asked one by one.
        askToStop(child.pid);
        await settledWithin(exited, graceMs);
      }
      // The kill of its parent ends the namespace's first process and with it everything inside.
      if (!over && isSame(child.pid, start)) {
        const tree = descendants(child.pid);
        signal(-child.pid, 'SIGKILL');
        for (const pid of tree) signal(pid, 'SIGKILL');
      }
      await exited;
    },
  };
}
