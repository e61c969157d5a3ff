import { execFile } from 'node:child_process';

/**
 * Runs a system tool of the host, with a limit of 10 s.
 * @throws Error with what the tool said
 */
export function tool(argv: readonly string[], input?: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C' };
    const child = execFile(
      argv[0]!,
      argv.slice(1),
      { env, timeout: 10_000, maxBuffer: 8 << 20 },
      (error, stdout, stderr) => {
        if (!error) resolve(stdout);
        else
          reject(
            new Error(`${argv.slice(0, 4).join(' ')}: ${(stderr || error.message).trim().slice(0, 500)}`),
          );
      },
    );
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input ?? '');
  });
}
