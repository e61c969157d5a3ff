import { mkdirSync, symlinkSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type EnvEntry } from '@nebo/contracts';
import { startChild } from '../../system/child.js';
import { askToStop, killMarked, runMark, signal } from '../../system/processes.js';
import { type Run } from '../../system/runs.js';
import { settledWithin } from '../../system/timing.js';
import { type Toolchain } from '../../system/toolchain.js';
import { type Exit, type SandboxProcess } from '../sandbox.js';

/** Starts a command as a plain child process with a process group of its own. Nothing encloses it. */
export async function startPlain(
  run: Run,
  command: string,
  cwd: string,
  env: readonly EnvEntry[],
  io: { onOutput(chunk: Buffer): void; paused?: (() => Promise<void> | null) | undefined },
): Promise<SandboxProcess & { pid: number }> {
  const child = await startChild(['sh', '-c', command], {
    cwd,
    group: true,
    env: { ...Object.fromEntries(env.map(({ name, value }) => [name, value])), [runMark]: run.mark },
    onOutput: io.onOutput,
    paused: io.paused,
    onStart: (pid) => run.started(pid, true),
  });
  let over = false;
  const end = async () => {
    // The group first; then whatever left it, found by the mark in its environment.
    signal(-child.pid, 'SIGKILL');
    await killMarked((mark) => mark === run.mark);
  };
  const exited: Promise<Exit> = child.exited.then(async (code) => {
    over = true;
    await end();
    return { code, limit: null };
  });
  return {
    pid: child.pid,
    exited,
    stop: async (graceMs) => {
      if (!over && graceMs > 0) {
        askToStop(child.pid);
        await settledWithin(exited, graceMs);
      }
      if (!over) await end();
      await exited;
    },
  };
}

/** What plain processes of this host see: the same Node as this process first in PATH, a home of their own. */
export function plainEnv(run: Run, tools: Toolchain): EnvEntry[] {
  const bin = join(run.dir, 'bin');
  const home = join(run.dir, 'home');
  for (const folder of [bin, home, join(run.dir, 'tmp')]) mkdirSync(folder, { recursive: true });
  const links: [string, string][] = [['node', tools.node]];
  if (tools.npm)
    links.push(['npm', join(tools.npm, 'bin/npm-cli.js')], ['npx', join(tools.npm, 'bin/npx-cli.js')]);
  if (tools.go) links.push(['go', join(tools.go.root, 'bin/go')]);
  if (tools.python) links.push(['python3', tools.python.executable]);
  for (const [name, target] of links) {
    try {
      symlinkSync(target, join(bin, name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
  const path = [bin, process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin'].join(delimiter);
  return [
    { name: 'PATH', value: path, secret: false },
    { name: 'HOME', value: home, secret: false },
    { name: 'TMPDIR', value: join(run.dir, 'tmp'), secret: false },
    { name: 'LANG', value: 'C.UTF-8', secret: false },
    ...(tools.authorities ? [{ name: 'NODE_EXTRA_CA_CERTS', value: tools.authorities, secret: false }] : []),
    { name: 'npm_config_update_notifier', value: 'false', secret: false },
  ];
}
