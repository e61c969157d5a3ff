import { execFile } from 'node:child_process';

/** Bytes on disk below a folder; more than can be counted in 10 s is without bound. A folder that is not there has none. */
export function diskUsed(dir: string): Promise<number> {
  const options = {
    timeout: 10_000,
    killSignal: 'SIGKILL' as const,
    env: { PATH: '/usr/bin:/bin', LANG: 'C' },
  };
  return new Promise((resolve) => {
    execFile('du', ['-s', '-x', '-k', dir], options, (error, stdout) => {
      // Files that vanish while they are counted make du fail, but it says the sum all the same.
      const sum = Number.parseInt(stdout, 10) * 1024;
      if (Number.isFinite(sum)) resolve(sum);
      else resolve(error?.killed ? Infinity : 0);
    });
  });
}
