import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FakeApi } from './fake-api.js';

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface RunOptions {
  cwd?: string;
  /** Undefined takes a variable away. */
  env?: Record<string, string | undefined>;
  stdin?: string;
  /** Gets the process, for signals and closed pipes. */
  during?: (child: ChildProcess, said: () => string) => void;
}

/** The command that the global setup built. */
export const main = () => join(process.env['NEBO_CLI_TEST_DIST']!, 'main.js');

/** One fake API, one home folder and one working folder, and the built command run as a child process with pipes. */
export class Bench {
  readonly home = mkdtempSync(join(tmpdir(), 'nebo-home-'));
  /** The working folder. */
  readonly work = mkdtempSync(join(tmpdir(), 'nebo-work-'));
  api!: FakeApi;

  static async start(): Promise<Bench> {
    const bench = new Bench();
    bench.api = await FakeApi.start();
    return bench;
  }

  async stop(): Promise<void> {
    await this.api.stop();
    rmSync(this.home, { recursive: true, force: true });
    rmSync(this.work, { recursive: true, force: true });
  }

  environment(more: Record<string, string | undefined> = {}): Record<string, string> {
    const all: Record<string, string | undefined> = {
      PATH: process.env['PATH'],
      HOME: this.home,
      XDG_CONFIG_HOME: join(this.home, 'config'),
      XDG_CACHE_HOME: join(process.env['NEBO_CLI_TEST_DIST']!, 'cache'),
      NEBO_API_URL: this.api.url,
      NEBO_API_KEY: this.api.key,
      ...more,
    };
    return Object.fromEntries(
      Object.entries(all).filter((pair): pair is [string, string] => pair[1] !== undefined),
    );
  }

  /** Runs `nebo` with arguments. */
  run(
    args: readonly string[],
    { cwd = this.work, env = {}, stdin = '', during }: RunOptions = {},
  ): Promise<Ran> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [main(), ...args], {
        cwd,
        env: this.environment(env),
        stdio: 'pipe',
      });
      let stdout = '';
      let stderr = '';
      child.stdout.on('data', (chunk) => (stdout += String(chunk)));
      child.stderr.on('data', (chunk) => (stderr += String(chunk)));
      child.stdin.on('error', () => undefined);
      child.stdin.end(stdin);
      child.on('error', reject);
      child.on('close', (code) => resolve({ code, stdout, stderr }));
      during?.(child, () => stderr);
    });
  }

  /** Runs, expects exit 0 and reads stdout as JSON. */
  async json<T>(args: readonly string[], options: RunOptions = {}): Promise<T> {
    const ran = await this.run([...args, '-o', 'json'], options);
    if (ran.code !== 0) throw new Error(`exit ${ran.code}: ${ran.stderr}`);
    return JSON.parse(ran.stdout) as T;
  }

  /** Runs with `-o json`, expects a failure, and reads the one error of stderr. */
  async error(
    args: readonly string[],
    options: RunOptions = {},
  ): Promise<{ code: number | null; error: Record<string, unknown> }> {
    const ran = await this.run([...args, '-o', 'json'], options);
    if (ran.stdout !== '') throw new Error(`stdout is not empty: ${ran.stdout}`);
    return { code: ran.code, ...(JSON.parse(ran.stderr) as { error: Record<string, unknown> }) };
  }
}

/** Rows of a tab-separated table. */
export const rows = (text: string): string[][] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => line.split('\t'));
