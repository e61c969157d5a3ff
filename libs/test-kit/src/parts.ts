import { spawn, type ChildProcess } from 'node:child_process';
import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { delimiter, dirname, join, parse } from 'node:path';

/**
 * What all parts share: temp folders, ports, and their end. Module state is deliberate here and nowhere else: Jest gives
 * each test file its own copy of this module, so it is the list of what one test file started.
 */

/** The answer of a probe: what was found, or null and one sentence why not. */
export interface Found<T> {
  found: T | null;
  reason: string | null;
}

const live = new Set<() => Promise<void>>();
let guardian: ChildProcess | undefined;

/**
 * Ends what is left when this process is gone, however it went (`kill -9` included): it waits for the end of its stdin,
 * then kills the noted pids and removes the noted folders. Exit hooks cannot do this: inside Jest they never run.
 */
const guardianSource = `
import { createInterface } from 'node:readline';
import { rmSync } from 'node:fs';
const pids = new Set(), dirs = new Set();
const sets = { pid: pids, dir: dirs };
createInterface({ input: process.stdin }).on('line', (line) => {
  const [verb, kind, value] = line.split('\\t');
  if (verb === 'note') sets[kind].add(value); else sets[kind].delete(value);
}).on('close', () => {
  for (const pid of pids) { try { process.kill(Number(pid), 'SIGKILL'); } catch {} }
  setTimeout(() => {
    for (const dir of dirs) { try { rmSync(dir, { recursive: true, force: true, maxRetries: 5 }); } catch {} }
  }, pids.size > 0 ? 300 : 0);
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined);
`;

function tellGuardian(verb: 'note' | 'forget', kind: 'pid' | 'dir', value: string): void {
  if (guardian === undefined) {
    guardian = spawn(process.execPath, ['--input-type=module', '-e', guardianSource], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      cwd: parse(process.cwd()).root,
      env: { PATH: process.env['PATH'] },
    });
    guardian.on('error', () => undefined);
    guardian.stdin!.on('error', () => undefined);
    guardian.unref();
    (guardian.stdin as unknown as { unref?: () => void }).unref?.();
  }
  guardian.stdin!.write(`${verb}\t${kind}\t${value}\n`);
}

/** Has the process ended, and the folder removed, when this process is gone; `forgetX` takes it back. */
export const notePid = (pid: number) => tellGuardian('note', 'pid', String(pid));
export const forgetPid = (pid: number) => tellGuardian('forget', 'pid', String(pid));

/** Puts `stop` on the list of `stopAllParts`; the returned function takes it off. */
export function noteLive(stop: () => Promise<void>): () => void {
  live.add(stop);
  return () => live.delete(stop);
}

/** Stops every part that this test file started. Runs by itself after the last test of a file under Jest. */
export async function stopAllParts(): Promise<void> {
  await Promise.all([...live].map((stop) => stop().catch(() => undefined)));
}

// One test file = one copy of this module: its parts end with it, also when a spec forgot stop().
const hook = (globalThis as { afterAll?: (fn: () => Promise<void>) => void }).afterAll;
if (typeof hook === 'function') hook(stopAllParts);

/** May a user who is neither owner nor group walk down to this path? */
export function isTraversable(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    try {
      if ((statSync(at).mode & 0o001) === 0) return false;
    } catch {
      return false;
    }
    if (at === dirname(at)) return true;
  }
}

/** The folder of everything temporary, `<tmp>/nebo-test-kit-<uid>`; walkable by the user PostgreSQL runs as. */
export function kitFolder(): string {
  const uid = process.getuid?.() ?? 0;
  const base = uid === 0 && !isTraversable(tmpdir()) ? '/tmp' : tmpdir();
  const folder = join(base, `nebo-test-kit-${uid}`);
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  if (statSync(folder).uid !== uid) throw new Error(`${folder} belongs to another user; set TMPDIR`);
  return folder;
}

/** A temp folder that is removed with the part or, at the latest, with this process. */
export async function tempFolder(name: string): Promise<{ path: string; remove(): void }> {
  const path = await mkdtemp(join(kitFolder(), `${name}-`));
  await chmod(path, 0o755);
  tellGuardian('note', 'dir', path);
  return {
    path,
    remove() {
      rmSync(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
      tellGuardian('forget', 'dir', path);
    },
  };
}

/** Where big things are kept between runs: `NEBO_TEST_CACHE`, else `nebo/test-kit` in the user's cache folder. */
export function cacheFolder(): string {
  const own = process.env['NEBO_TEST_CACHE'];
  if (own) return own;
  const home = process.env['XDG_CACHE_HOME'] ?? join(userInfo().homedir, '.cache');
  return join(home, 'nebo', 'test-kit');
}

/** A TCP port of 127.0.0.1 that is free now. Another process may take it before use, so callers retry. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** First executable of this name on PATH or in the further folders; null when there is none. */
export function findProgram(name: string, further: readonly string[] = []): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), ...further].filter(
    (folder) => folder !== '',
  );
  for (const folder of folders) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      if (statSync(path).isFile()) return path;
    } catch {
      continue;
    }
  }
  return null;
}

/**
 * Says once per test run on stderr which form of a part is used and why. Workers and test files share no memory, so a
 * marker file named after their common parent process is what makes it once.
 */
export function sayOnce(part: string, sentence: string): void {
  const folder = join(kitFolder(), 'said');
  mkdirSync(folder, { recursive: true });
  try {
    writeFileSync(join(folder, `${pidSpace()}${process.ppid}-${part}`), '', { flag: 'wx' });
  } catch {
    return;
  }
  process.stderr.write(`test-kit: ${part}: ${sentence}\n`);
  const dayAgo = Date.now() - 86_400_000;
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    try {
      if (statSync(path).mtimeMs < dayAgo) rmSync(path);
    } catch {
      continue;
    }
  }
}

/** Pids repeat in each pid namespace, and `npm run test:containers` makes a new one. */
function pidSpace(): string {
  try {
    return readlinkSync('/proc/self/ns/pid').replace(/\D/g, '') + '-';
  } catch {
    return '';
  }
}

/** Waits until `probe` returns something else than undefined; asks every `every` ms. @throws Error after `limit` ms */
export async function waitFor<T>(
  what: string,
  limit: number,
  probe: () => Promise<T | undefined>,
  every = 15,
): Promise<T> {
  const end = Date.now() + limit;
  for (;;) {
    const value = await probe();
    if (value !== undefined) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${limit} ms`);
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

/** Resolves when the child is gone. */
function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined)
    return Promise.resolve();
  return new Promise((resolve) => child.once('exit', () => resolve()));
}

/** Sends `signal`, SIGKILL after `patience` ms, and resolves when the child is gone. */
export async function endProcess(
  child: ChildProcess,
  signal: NodeJS.Signals,
  patience = 5_000,
): Promise<void> {
  // The child was unreferenced so that it keeps no test process alive; waiting for it must.
  child.ref();
  if (child.exitCode === null && child.signalCode === null) child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), patience);
  await exited(child);
  clearTimeout(timer);
  if (child.pid !== undefined) forgetPid(child.pid);
}
