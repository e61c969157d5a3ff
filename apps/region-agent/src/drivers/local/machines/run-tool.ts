import { execFile } from 'node:child_process';

/**
 * Runs a program that may take long, as one that copies a disk.
 * @throws the signal's reason; Error with what the program said
 */
export function runTool(argv: readonly string[], signal: AbortSignal, ms = 60 * 60_000): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C' };
    const options = { env, timeout: ms, killSignal: 'SIGKILL' as const, maxBuffer: 8 << 20, signal };
    execFile(argv[0]!, argv.slice(1), options, (error, stdout, stderr) => {
      if (!error) resolve(stdout);
      else if (signal.aborted) reject(signal.reason as Error);
      else {
        const words = (stderr || error.message).trim().slice(0, 500);
        reject(new Error(`${argv.slice(0, 2).join(' ')}: ${words}`));
      }
    });
  });
}
