import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process';
import { constants } from 'node:os';
import { type Writable } from 'node:stream';
import { settledWithin } from './timing.js';

export interface ChildOptions {
  cwd?: string;
  /** The whole environment; nothing is inherited. */
  env: Record<string, string>;
  /** Leads a process group of its own. */
  group?: boolean;
  /** Given to the process as file descriptor 3. */
  extraInput?: Buffer;
  onOutput(chunk: Buffer): void;
  /** A promise while output ought not to be read: the process is held by its full pipe. */
  paused?: (() => Promise<void> | null) | undefined;
  /** Told the pid at once, before anything else can happen. */
  onStart(pid: number): void;
}

export interface Child {
  pid: number;
  /** Exit code (128 + number for signals); settled after the last output has been read. */
  exited: Promise<number>;
}

/** Starts a process without input whose output goes to `onOutput`. @throws when it cannot be started */
export async function startChild(argv: readonly string[], options: ChildOptions): Promise<Child> {
  const stdio: StdioOptions = ['ignore', 'pipe', 'pipe', ...(options.extraInput ? ['pipe' as const] : [])];
  const child: ChildProcess = spawn(argv[0]!, argv.slice(1), {
    stdio,
    env: options.env,
    detached: options.group ?? false,
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const pid = child.pid;
  if (pid === undefined) return new Promise((_, reject) => child.once('error', reject));
  options.onStart(pid);
  child.on('error', () => undefined);
  if (options.extraInput) {
    const input = child.stdio[3] as Writable;
    input.on('error', () => undefined);
    input.end(options.extraInput);
  }
  for (const stream of [child.stdout!, child.stderr!])
    stream.on('data', (chunk: Buffer) => {
      options.onOutput(chunk);
      const wait = options.paused?.();
      if (!wait) return;
      stream.pause();
      void wait.then(() => stream.resume());
    });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const exited = new Promise<number>((resolve) => {
    child.once('exit', (code, signal) => {
      const value = code ?? 128 + (signal ? constants.signals[signal] : 0);
      // A grandchild that outlives its parent may hold the pipe; what came so far is enough then.
      void settledWithin(closed, 1_000).then(() => {
        child.stdout!.destroy();
        child.stderr!.destroy();
        resolve(value);
      });
    });
  });
  return { pid, exited };
}
