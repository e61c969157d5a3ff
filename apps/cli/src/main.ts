import { interrupted } from './core/errors.js';
import { exitCodes } from './core/exit-codes.js';
import { runNebo } from './core/run.js';

/** The process: streams, signals, exit code. Everything else gets them handed in. */
async function main(): Promise<void> {
  // A reader that has enough (`nebo app list | head`) closes the pipe: that is no error and nothing is said.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? exitCodes.done : exitCodes.failed));
  process.stderr.on('error', () => undefined);

  const interrupt = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (interrupt.signal.aborted) process.exit(exitCodes.interrupted);
      interrupt.abort(interrupted());
    });
  }

  const io = {
    // Opened when it is read: most commands never do.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    cwd: process.cwd(),
  };
  const code = await Promise.race([
    runNebo(process.argv.slice(2), io, interrupt.signal),
    // Work that does not hear the signal (a read of stdin, a packing) must not hold the terminal.
    new Promise<130>((resolve) =>
      interrupt.signal.addEventListener('abort', () => setTimeout(() => resolve(exitCodes.interrupted), 1500).unref()),
    ),
  ]);
  process.exitCode = code;
  // What is still in the pipe is written before the end; open handles must not delay it.
  process.stdout.write('', () => process.exit(code));
}

void main();
