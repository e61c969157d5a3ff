import { fork, type ChildProcess, type StdioOptions } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

describe('a process that is told to stop', () => {
  const children: ChildProcess[] = [];
  afterEach(() => children.splice(0).forEach((child) => child.kill('SIGKILL')));

  /** Ready to be told; `words` is what it has said over its channel. */
  const start = async (stdio: StdioOptions): Promise<{ child: ChildProcess; words: string[] }> => {
    const test = fileURLToPath(new URL('../test/', import.meta.url));
    const child = fork(`${test}stopping-child.ts`, {
      execArgv: ['--conditions', 'nebo-src', '--import', `${test}../../../tools/test/run-ts.mjs`],
      env: { PATH: process.env['PATH'] },
      stdio,
    });
    children.push(child);
    const words: string[] = [];
    child.on('message', (word) => void words.push(String(word)));
    await once(child, 'message');
    return { child, words };
  };
  const ended = async (child: ChildProcess): Promise<number | null> => {
    await once(child, 'exit');
    return child.exitCode;
  };

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('stops in order at %s', async (signal) => {
    const { child, words } = await start(['ignore', 'ignore', 'ignore', 'ipc']);
    child.kill(signal);
    expect(await ended(child)).toBe(0);
    expect(words).toEqual(['ready', 'stopped']);
  });

  it('a closed terminal, told by the kernel and by the parent as well, does not cut the stop off; a second wish does', async () => {
    const hungUp = await start(['ignore', 'ignore', 'ignore', 'ipc']);
    hungUp.child.kill('SIGHUP');
    setTimeout(() => hungUp.child.kill('SIGHUP'), 50);
    expect(await ended(hungUp.child)).toBe(0);
    const hurried = await start(['ignore', 'ignore', 'ignore', 'ipc']);
    hurried.child.kill('SIGTERM');
    setTimeout(() => hurried.child.kill('SIGINT'), 50);
    expect(await ended(hurried.child)).toBe(130);
    expect(hurried.words).toEqual(['ready']);
  });

  it('stops in order when nobody reads its words any more, as when the tee behind it heard the same Ctrl-C', async () => {
    const { child, words } = await start(['ignore', 'pipe', 'pipe', 'ipc']);
    child.stdout!.destroy();
    child.stderr!.destroy();
    child.kill('SIGINT');
    expect(await ended(child)).toBe(0);
    expect(words).toEqual(['ready', 'stopped']);
  });

  it('stops in order when its words can no longer be written: the disk is full', async () => {
    const full = openSync('/dev/full', 'w');
    const { child, words } = await start(['ignore', full, full, 'ipc']);
    closeSync(full);
    child.kill('SIGTERM');
    expect(await ended(child)).toBe(0);
    expect(words).toEqual(['ready', 'stopped']);
  });
});
