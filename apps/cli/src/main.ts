import { interrupted } from './core/errors.js';
import { exitCodes } from './core/exit-codes.js';
import { type Io } from './core/io.js';
import { runNebo } from './core/run.js';

/** The process: streams, signals, exit code. Everything else gets them handed in. */
async function main(): Promise<void> {
  // Notes of Node to its programmers would stand between a program and the one JSON error that it expects.
  if (!process.argv.includes('--debug')) process.removeAllListeners('warning');

  const interrupt = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (interrupt.signal.aborted) process.exit(exitCodes.interrupted);
      interrupt.abort(interrupted());
    });
  }

  const io = openStreams();
  const code = await Promise.race([
    runNebo(process.argv.slice(2), io, interrupt.signal),
    // Work that does not hear the signal (a read of stdin, a packing) must not hold the terminal.
    new Promise<130>((resolve) =>
      interrupt.signal.addEventListener('abort', () =>
        setTimeout(() => resolve(exitCodes.interrupted), 1500).unref(),
      ),
    ),
  ]);
  process.exitCode = code;
  // What is still in the pipe is written before the end; open handles must not delay it.
  io.stdout.write('', (error) => {
    // An answer that was not written comes back here first, before its stream tells.
    if (error && code === exitCodes.done) unwritten(process.stdout.errored ?? error);
    process.exit(code);
  });
}

/**
 * Ends a run whose answer could not be written, to a full disk say. A reader that has enough (`nebo app list | head`) closes the
 * pipe: that is no error and nothing is said.
 */
function unwritten(error: NodeJS.ErrnoException): never {
  if (error.code === 'EPIPE') process.exit(exitCodes.done);
  process.stderr.write(`error: the answer could not be written: ${error.message}\n`);
  process.exit(exitCodes.failed);
}

/** Each stream is opened when it is first read, since that takes milliseconds and most commands need one of them. */
function openStreams(): Io {
  let out: NodeJS.WriteStream | undefined;
  let err: NodeJS.WriteStream | undefined;
  return {
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return (out ??= process.stdout.on('error', unwritten) as NodeJS.WriteStream);
    },
    get stderr() {
      // Nobody reads what is said: the work goes on.
      return (err ??= process.stderr.on('error', () => undefined) as NodeJS.WriteStream);
    },
    env: process.env,
    cwd: process.cwd(),
  };
}

void main();
